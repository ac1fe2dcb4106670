// The tensors of a folder, as GGUF files have them. Within this folder.
#pragma once

#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/result.h"
#include "gguf/file.h"
#include "hub/config.h"
#include "hub/weights_files.h"

namespace lockstep::hub {

struct Tensors {
  std::vector<gguf::Tensor> tensors;
  std::vector<AlignedVector<std::byte>> memory;  // of those that are made
};

// What needs no change stays where it is; the rest is made now, on all cores. `source` is for
// messages.
Result<Tensors> make_tensors(const Config& config, const StoredWeights& weights,
                             const std::string& source);

}  // namespace lockstep::hub
