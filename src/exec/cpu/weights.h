// The weights of a program as the kernels want them.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "exec/cpu/kernels/kernels.h"
#include "op/program.h"

namespace lockstep::exec::cpu {

// Memory from the system, zero, in huge pages where it gives them.
class Region {
 public:
  Region() = default;
  static Result<Region> allocate(int64_t bytes);
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// The weight of a Linear, or of each expert of an ExpertLinear, in panels.
struct PanelWeight {
  std::vector<op::Weight> sources;  // by expert; one of a Linear
  ProductKernel kernel = nullptr;
  bool takes_codes = false;
  int64_t rows = 0, columns = 0;
  int64_t panel_bytes = 0;
  int64_t panels = 0;               // of one source
  const std::byte* data = nullptr;  // null: panels are made from the source as they are needed
  std::vector<float> bias;          // [sources, rows]; empty: none

  const std::byte* panels_of(int64_t expert) const {
    return data == nullptr ? nullptr : data + expert * panels * panel_bytes;
  }
  const float* bias_of(int64_t expert) const {
    return bias.empty() ? nullptr : bias.data() + expert * rows;
  }
};

class Weights {
 public:
  // Packs on `threads` threads, with a progress bar, and gives the pages of the file back as it
  // goes. Without `repack` nothing is kept: every product packs its panels anew.
  static Result<Weights> load(const op::Program& program, const Kernels& kernels, bool repack,
                              int threads);

  // By index of the op. Null where the op is no product.
  const PanelWeight* linear(size_t op) const { return linears_[op].get(); }
  // Weight and bias of a Norm, the bias of a Choose, as floats; the sinks of an Attention.
  const std::vector<float>& norm_weight(size_t op) const { return norms_[op].first; }
  const std::vector<float>& norm_bias(size_t op) const { return norms_[op].second; }
  const float* sinks(size_t op) const {
    return norms_[op].first.empty() ? nullptr : norms_[op].first.data();
  }

 private:
  Region region_;
  std::vector<std::unique_ptr<PanelWeight>> linears_;
  std::vector<std::pair<std::vector<float>, std::vector<float>>> norms_;
};

}  // namespace lockstep::exec::cpu
