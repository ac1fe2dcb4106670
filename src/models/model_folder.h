// What a folder holds, where somebody gives one and a GGUF file is needed.
#pragma once

#include <string>

namespace lockstep::models {

// A message: that it is a folder, what is in it or missing, and what to give instead.
std::string folder_text(const std::string& folder);

}  // namespace lockstep::models
