// What -m means: a path, or the name of a shipped model.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep::cli {

inline constexpr const char* kDefaultModel = "haiku";

// The file for `name`. Where there is none, the error says where was looked.
Result<std::string> model_path(const std::string& name);

}  // namespace lockstep::cli
