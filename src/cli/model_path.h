// What -m means: a path, or the name of a shipped or downloaded model.
#pragma once

#include <string>

#include "base/result.h"
#include "models/locate.h"

namespace lockstep::cli {

using models::kDefaultModel;

// The file for `name`. Where there is none, the error says where was looked.
inline Result<std::string> model_path(const std::string& name) {
  return models::find_model(name);
}

}  // namespace lockstep::cli
