// What a folder holds, where somebody gives one and a GGUF file is needed.
#pragma once

#include <string>

namespace lockstep::models {

// Whether it is a model as the hub has it: a folder with config.json.
bool is_hub_folder(const std::string& path);

// A message: that it is a folder, what is in it or missing, and what to give instead.
std::string folder_text(const std::string& folder);

}  // namespace lockstep::models
