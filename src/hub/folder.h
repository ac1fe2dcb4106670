// A model as the hub has it: a folder with config.json and safetensors, in the shape of a GGUF
// file.
#pragma once

#include <string>

#include "base/result.h"
#include "gguf/file.h"

namespace lockstep::hub {

// A model file or such a folder. Names, order of rows, offsets and metadata are as in a GGUF file
// of the model. Tensors stay in the files of the folder where they need no change.
Result<gguf::File> open(const std::string& path, bool map = true);  // else read into memory

}  // namespace lockstep::hub
