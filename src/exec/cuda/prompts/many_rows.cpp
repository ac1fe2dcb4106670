#include "exec/cuda/prompts/many_rows.h"

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

Result<Halves> ManyRows::halves_of(const WeightView& weight, HalfWeight& scratch,
                                   cudaStream_t stream) {
  if (const auto found = resident_.find(weight.codes); found != resident_.end())
    return found->second.halves;
  const bool low = weight.format == quant::Format::kF32;
  const int64_t count = weight.rows * weight.columns;
  size_t free = 0, total = 0;
  LS_TRY_VOID(check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  // A tenth of the memory stays free for longer prompts.
  const bool stays =
      count * (low ? 4 : 2) < static_cast<int64_t>(free - std::min(free, total / 10));
  HalfWeight& place = stays ? resident_[weight.codes] : scratch;
  if (!stays) LS_TRY_VOID(check(cudaStreamSynchronize(stream), "waiting for a product"));
  LS_TRY_VOID(make_room(place, count, low));
  run_halve(weight, place.halves, stream);
  return place.halves;
}

Result<void> ManyRows::make_room_for_rows(int64_t count, cudaStream_t stream) {
  if (rows_.size_bytes() < 4 * count) {
    LS_TRY_VOID(check(cudaStreamSynchronize(stream), "waiting for a product"));
    rows_ = {};
    LS_TRY(rows_, DeviceMemory::allocate(4 * count));
  }
  if (numbers_.data() != nullptr) return {};
  LS_TRY(numbers_, DeviceMemory::allocate((2 + kMostProducts) * 4));
  return check(cudaMemsetAsync(numbers_.data(), 0, 8, stream), "cudaMemsetAsync");
}

Result<void> ManyRows::begin(cudaStream_t stream) {
  if (numbers_.data() == nullptr) return {};
  return check(cudaMemsetAsync(numbers_.data(), 0, 8, stream), "cudaMemsetAsync");
}

bool ManyRows::goes_to_blas(int64_t columns) {
  if (!looked_for_blas_) blas_ = Blas::load();
  looked_for_blas_ = true;
  // Tensor cores want rows of whole 16 bytes.
  return blas_ != nullptr && columns % 8 == 0;
}

Result<uint32_t*> ManyRows::place_of_largest(int64_t columns, cudaStream_t stream) {
  if (!goes_to_blas(columns)) return nullptr;
  LS_TRY_VOID(make_room_for_rows(0, stream));
  return numbers_.as<uint32_t>() + turn_;
}

Result<void> ManyRows::multiply(const float* x, int64_t tokens, std::span<const Product> products,
                                bool knows_largest, cudaStream_t stream) {
  if (!goes_to_blas(products[0].weight.columns)) {
    for (const Product& product : products)
      run_matmul({product.weight, product.bias, x, product.out, tokens}, stream);
    return {};
  }
  if (const auto most = static_cast<size_t>(kMostProducts); products.size() > most) {
    LS_TRY_VOID(multiply(x, tokens, products.first(most), knows_largest, stream));
    return multiply(x, tokens, products.subspan(most), false, stream);
  }
  const int64_t count = tokens * products[0].weight.columns;
  LS_TRY_VOID(make_room_for_rows(count, stream));
  HalveRowsCall call;
  call.x = x;
  call.count = count;
  call.out = {rows_.data(), nullptr, numbers_.as<uint32_t>() + turn_};
  turn_ = 1 - turn_;
  call.next_largest = numbers_.as<uint32_t>() + turn_;
  call.factors = numbers_.as<float>(8);
  Halves weights[kMostProducts];
  for (const Product& product : products) {
    if (is_float(product.weight)) call.out.low = rows_.data() + 2 * count;
    LS_TRY(weights[call.weights], halves_of(product.weight, scratch_[call.weights], stream));
    call.largest_weight[call.weights] = weights[call.weights].largest;
    ++call.weights;
  }
  run_halve_rows(call, !knows_largest, stream);
  for (size_t i = 0; i < products.size(); ++i) {
    const Product& product = products[i];
    const Halves& w = weights[i];
    const auto add_product = [&](const void* a, const void* b, const float* bias, bool add) {
      return blas_->multiply(a, b, bias, product.out, product.weight.rows, product.weight.columns,
                             tokens, call.factors + i, add, stream);
    };
    LS_TRY_VOID(add_product(w.high, call.out.high, product.bias, false));
    if (is_float(product.weight)) LS_TRY_VOID(add_product(w.high, call.out.low, nullptr, true));
    if (w.low != nullptr) LS_TRY_VOID(add_product(w.low, call.out.high, nullptr, true));
  }
  return {};
}

}  // namespace lockstep::exec::cuda
