// How a wrong tensor of B came from A's tensors.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "audit/measure.h"

namespace lockstep::audit {

struct Explanation {
  How how = How::kUnknown;
  std::string detail;
};

// What a tensor may have come from.
struct Origins {
  std::span<const gguf::Tensor> tensors;  // A's: another one may stand in this one's place
  std::vector<int64_t> head_sizes;        // that rows of q and k may be cut into
  std::vector<int64_t> rotated;           // numbers of a head that rope turns
};
Origins origins_of(const gguf::File& a, std::span<const gguf::Tensor> tensors);

// The shapes may differ. `measured`: of the numbers in the order of the files; null where one
// tensor has more than the other.
Explanation explain(const gguf::Tensor& a, const gguf::Tensor& b, const Measured* measured,
                    const Origins& origins);

}  // namespace lockstep::audit
