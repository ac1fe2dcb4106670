#pragma once

#include <functional>
#include <vector>

#include "audit/audit.h"

namespace lockstep::audit {

// Every tensor of both files. `advance` is told bytes, of both together.
Result<std::vector<TensorAudit>> audit_tensors(const gguf::File& a, const gguf::File& b,
                                               const std::function<void(int64_t)>& advance);

}  // namespace lockstep::audit
