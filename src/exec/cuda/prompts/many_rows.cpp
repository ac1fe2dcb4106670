#include "exec/cuda/prompts/many_rows.h"

#include <algorithm>

#include "exec/cuda/kernels.h"

namespace lockstep::exec::cuda {
namespace {

int parts_of(quant::Format format) {
  switch (format) {
    case quant::Format::kF32:
      return 3;
    case quant::Format::kF16:
    case quant::Format::kBF16:
      return 2;
    default:
      return 1;
  }
}

// Whether one call can compute both, and the ones between them, at equal distances.
bool go_together(const ManyRows::Product& a, const ManyRows::Product& b) {
  return a.weight.rows == b.weight.rows && a.weight.format == b.weight.format &&
         (a.bias == nullptr) == (b.bias == nullptr) && a.out < b.out && a.bias <= b.bias;
}

}  // namespace

Result<void> ManyRows::begin(cudaStream_t stream) {
  if (numbers_.data() == nullptr) return {};
  return check(cudaMemsetAsync(numbers_.data(), 0, 8, stream), "cudaMemsetAsync");
}

bool ManyRows::goes_to_blas(int64_t columns) {
  if (starting_blas_.valid()) blas_ = starting_blas_.get();
  // Tensor cores want rows of whole 16 bytes.
  return blas_ != nullptr && columns % 8 == 0;
}

Result<RowHalves> ManyRows::place_of_rows(std::span<const WeightView> weights, int64_t tokens,
                                          cudaStream_t stream) {
  const int64_t columns = weights[0].columns;
  if (!goes_to_blas(columns)) return RowHalves{};
  if (numbers_.data() == nullptr) {
    LS_TRY(numbers_, DeviceMemory::allocate((2 + kMostProducts) * 4));
    LS_TRY_VOID(begin(stream));
  }
  parts_ = 0;
  for (const WeightView& weight : weights) parts_ = std::max(parts_, parts_of(weight.format));
  if (const int64_t bytes = tokens * parts_ * columns * 2; rows_.size_bytes() < bytes) {
    LS_TRY_VOID(check(cudaStreamSynchronize(stream), "waiting for a product"));
    rows_ = {};
    LS_TRY(rows_, DeviceMemory::allocate(bytes));
  }
  return RowHalves{rows_.data(), parts_, numbers_.as<uint32_t>() + turn_};
}

Result<WeightHalves> ManyRows::halves_of(std::span<const Product> group, HalfWeights& scratch,
                                         cudaStream_t stream) {
  const WeightView& first = group[0].weight;
  if (const auto found = resident_.find(first.codes);
      found != resident_.end() && found->second.halves.to != nullptr)
    return found->second.halves;
  const int parts = parts_of(first.format);
  const int64_t bytes = first.rows * first.columns * parts * 2;
  Layout layout;
  const int64_t largest = layout.place(4);
  const int64_t to = layout.place(bytes * std::ssize(group));
  size_t free = 0, total = 0;
  LS_TRY_VOID(check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  // A tenth of the memory stays free for longer prompts.
  const bool stays = layout.bytes() < static_cast<int64_t>(free - std::min(free, total / 10));
  HalfWeights& place = stays ? resident_[first.codes] : scratch;
  if (!stays) LS_TRY_VOID(check(cudaStreamSynchronize(stream), "waiting for a product"));
  if (place.memory.size_bytes() < layout.bytes()) {
    place.memory = {};
    LS_TRY(place.memory, DeviceMemory::allocate(layout.bytes()));
  }
  const WeightHalves halves{place.memory.data() + to, parts, place.memory.as<uint32_t>(largest)};
  LS_TRY_VOID(check(cudaMemsetAsync(halves.largest, 0, 4, stream), "cudaMemsetAsync"));
  for (const Product& product : group) run_largest(product.weight, halves.largest, stream);
  WeightHalves each = halves;
  for (const Product& product : group) {
    run_halve(product.weight, each, stream);
    each.to = static_cast<std::byte*>(each.to) + bytes;
  }
  return place.halves = halves;
}

Result<void> ManyRows::multiply(const float* x, int64_t tokens, std::vector<Product> products,
                                cudaStream_t stream) {
  if (!goes_to_blas(products[0].weight.columns)) {
    for (const Product& product : products)
      run_matmul({product.weight, product.bias, x, product.out, tokens}, stream);
    return {};
  }
  std::ranges::sort(products, {}, &Product::out);
  std::vector<std::span<const Product>> groups;
  for (size_t i = 0; i < products.size(); i += groups.back().size()) {
    size_t count = 1;
    // Two make a pair; more would have to lie at equal distances.
    if (i + 1 < products.size() && go_together(products[i], products[i + 1])) count = 2;
    groups.push_back(std::span(products).subspan(i, count));
  }
  const std::span<const std::span<const Product>> all = groups;
  for (size_t i = 0; i < all.size(); i += kMostProducts)
    LS_TRY_VOID(multiply_some(
        x, tokens, all.subspan(i, std::min<size_t>(kMostProducts, all.size() - i)), stream));
  turn_ = 1 - turn_;
  return {};
}

Result<void> ManyRows::multiply_some(const float* x, int64_t tokens,
                                     std::span<const std::span<const Product>> groups,
                                     cudaStream_t stream) {
  const int64_t columns = groups[0][0].weight.columns;
  FitRowsCall call;
  call.x = x;
  call.rows = tokens;
  call.columns = columns;
  call.out = {rows_.data(), parts_, numbers_.as<uint32_t>() + turn_};
  call.next_largest = numbers_.as<uint32_t>() + (1 - turn_);
  call.factors = numbers_.as<float>(8);
  WeightHalves weights[kMostProducts];
  for (const auto& group : groups) {
    LS_TRY(weights[call.weights], halves_of(group, scratch_[call.weights], stream));
    call.largest_weight[call.weights] = weights[call.weights].largest;
    ++call.weights;
  }
  run_fit_rows(call, stream);
  for (size_t i = 0; i < groups.size(); ++i) {
    const Product& first = groups[i].front();
    const Product& last = groups[i].back();
    const WeightHalves& weight = weights[i];
    // One part alone is the high one, which comes second where there are more.
    const int64_t begin = weight.parts == 1 && parts_ > 1 ? columns : 0;
    Blas::Product product;
    product.weight = weight.to;
    product.x = rows_.as<uint16_t>() + begin;
    product.bias = first.bias;
    product.out = first.out;
    product.alpha = call.factors + i;
    product.rows = first.weight.rows;
    product.columns = weight.parts * columns;
    product.tokens = tokens;
    product.x_stride = parts_ * columns;
    product.count = std::ssize(groups[i]);
    product.bias_stride = last.bias - first.bias;
    product.out_stride = last.out - first.out;
    LS_TRY_VOID(blas_->multiply(product, stream));
  }
  return {};
}

}  // namespace lockstep::exec::cuda
