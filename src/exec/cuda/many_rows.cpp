#include "exec/cuda/many_rows.h"

#include <algorithm>

#include "exec/cuda/kernels.h"

namespace lockstep::exec::cuda {
namespace {

bool is_float(const WeightView& weight) {
  return weight.format == quant::Format::kF32 || weight.format == quant::Format::kF16 ||
         weight.format == quant::Format::kBF16;
}

// Memory for `count` numbers as halves, kept where it is large enough.
template <class HalfWeight>
Result<void> make_room(HalfWeight& out, int64_t count, bool low) {
  Layout layout;
  const int64_t largest = layout.place(4);
  const int64_t high = layout.place(count * 2);
  const int64_t lows = low ? layout.place(count * 2) : 0;
  if (out.memory.size_bytes() < layout.bytes()) {
    out.memory = {};
    LS_TRY(out.memory, DeviceMemory::allocate(layout.bytes()));
  }
  out.halves = {out.memory.data() + high, low ? out.memory.data() + lows : nullptr,
                out.memory.template as<uint32_t>(largest)};
  return {};
}

}  // namespace

Result<Halves> ManyRows::halves_of(const WeightView& weight, cudaStream_t stream) {
  if (const auto found = resident_.find(weight.codes); found != resident_.end())
    return found->second.halves;
  const bool low = weight.format == quant::Format::kF32;
  const int64_t count = weight.rows * weight.columns;
  size_t free = 0, total = 0;
  LS_TRY_VOID(check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  // A tenth of the memory stays free for longer prompts.
  const bool stays =
      count * (low ? 4 : 2) < static_cast<int64_t>(free - std::min(free, total / 10));
  HalfWeight& place = stays ? resident_[weight.codes] : scratch_;
  if (!stays) LS_TRY_VOID(check(cudaStreamSynchronize(stream), "waiting for a product"));
  LS_TRY_VOID(make_room(place, count, low));
  run_halve(weight, place.halves, stream);
  return place.halves;
}

Result<void> ManyRows::prepare_rows(int64_t count, bool low, cudaStream_t stream) {
  if (have_high_ && (have_low_ || !low)) return {};
  if (rows_.memory.size_bytes() < 4 * count + 1024)
    LS_TRY_VOID(check(cudaStreamSynchronize(stream), "waiting for a product"));
  LS_TRY_VOID(make_room(rows_, count, true));
  Halves halves = rows_.halves;
  if (!low) halves.low = nullptr;
  run_halve(x_, count, halves, stream);
  have_high_ = true;
  have_low_ = low;
  return {};
}

Result<void> ManyRows::multiply(const WeightView& weight, const float* bias, float* out,
                                int64_t tokens, cudaStream_t stream) {
  if (!looked_for_blas_) blas_ = Blas::load();
  looked_for_blas_ = true;
  // Tensor cores want rows of whole 16 bytes.
  if (blas_ == nullptr || weight.columns % 8 != 0) {
    MatmulCall call;
    call.weight = weight;
    call.bias = bias;
    call.x = x_;
    call.out = out;
    call.tokens = tokens;
    run_matmul(call, stream);
    return {};
  }
  if (alpha_.data() == nullptr) {
    LS_TRY(alpha_, DeviceMemory::allocate(sizeof(float)));
  }
  const bool exact = is_float(weight);
  LS_TRY_VOID(prepare_rows(tokens * weight.columns, exact, stream));
  LS_TRY(const Halves w, halves_of(weight, stream));
  const auto* alpha = alpha_.as<float>();
  run_inverse_scale(w.largest, rows_.halves.largest, alpha_.as<float>(), stream);
  const auto product = [&](const void* a, const void* x, bool add) {
    return blas_->multiply(a, x, out, weight.rows, weight.columns, tokens, alpha, add, stream);
  };
  LS_TRY_VOID(product(w.high, rows_.halves.high, false));
  if (exact) LS_TRY_VOID(product(w.high, rows_.halves.low, true));
  if (w.low != nullptr) LS_TRY_VOID(product(w.low, rows_.halves.high, true));
  if (bias != nullptr) run_add_bias(out, bias, tokens, weight.rows, stream);
  return {};
}

}  // namespace lockstep::exec::cuda
