// Test-only: a copy of a trace in which something is different, as other engines would write it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace lockstep::engines {

struct Tensor {
  std::string checkpoint;
  std::vector<int64_t> shape;
  std::vector<double> values;
};

// Every value of every step passes through `alter`, which may change shape and numbers, or tell
// with false that it is to be left out. Written in `dtype`; `manifest` may be altered first.
void rewrite(const trace::Trace& trace, const std::string& folder, DType dtype,
             const std::function<bool(Tensor&)>& alter,
             const std::function<void(trace::Manifest&)>& alter_manifest = {});

}  // namespace lockstep::engines
