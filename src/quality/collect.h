// An importance matrix from a text: the inputs of every product of the forward pass.
#pragma once

#include <vector>

#include "base/result.h"
#include "gguf/imatrix.h"
#include "model/model.h"
#include "quality/quality.h"

namespace lockstep::quality {

// Every token of the windows counts.
Result<gguf::Imatrix> collect_imatrix(const model::Model& model, const std::vector<Window>& windows,
                                      const Setting& setting, const Advance& advance);

}  // namespace lockstep::quality
