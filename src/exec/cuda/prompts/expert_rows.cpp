#include "exec/cuda/prompts/expert_rows.h"

#include <algorithm>

#include "exec/cuda/kernels.h"

namespace lockstep::exec::cuda {
namespace {

bool is_float(const WeightView& weight) {
  return weight.scales == nullptr;
}

Result<void> make_room(DeviceMemory& memory, int64_t bytes, cudaStream_t stream) {
  if (memory.size_bytes() >= bytes) return {};
  LS_TRY_VOID(check(cudaStreamSynchronize(stream), "waiting for a product"));
  memory = {};
  LS_TRY(memory, DeviceMemory::allocate(bytes));
  return {};
}

Result<void> clear_largest(const DeviceMemory& numbers, cudaStream_t stream) {
  return check(cudaMemsetAsync(numbers.data(), 0, 8, stream), "cudaMemsetAsync");
}

}  // namespace

bool ExpertRows::takes(const WeightView& weight) {
  const auto [found, fresh] = takes_.try_emplace(weight.format);
  if (fresh) found->second = can_run_expert_products(weight.format);
  // Rows of halves are copied 16 bytes at a time. Units of 32 columns are counted by 32 bits, and
  // so are the pieces of 16 bytes that their codes are read in, two of a unit at most.
  return found->second && weight.columns % 8 == 0 && weight.rows * weight.columns / 16 < INT32_MAX;
}

Result<void> ExpertRows::begin(cudaStream_t stream) {
  grouped_ = -1;
  if (numbers_.data() == nullptr) return {};
  return clear_largest(numbers_, stream);
}

Result<const uint32_t*> ExpertRows::largest_of(const WeightView& weight, cudaStream_t stream) {
  if (const auto found = largest_.find(weight.codes); found != largest_.end())
    return found->second.as<const uint32_t>();
  LS_TRY(DeviceMemory place, DeviceMemory::allocate(4));
  LS_TRY_VOID(check(cudaMemsetAsync(place.data(), 0, 4, stream), "cudaMemsetAsync"));
  run_largest(weight, place.as<uint32_t>(), stream);
  return (largest_[weight.codes] = std::move(place)).as<const uint32_t>();
}

Result<void> ExpertRows::group(const Inputs& inputs, cudaStream_t stream) {
  if (grouped_ == inputs.choice) return {};
  GroupCall call;
  call.choice = inputs.chosen;
  call.experts = inputs.experts;
  call.rows = inputs.tokens * inputs.used;
  // A tile of each expert may be all but empty.
  call.out.most_tiles = call.rows / kExpertTile + std::min(call.experts, call.rows);
  Layout layout;
  const int64_t order = layout.place(call.rows * 4);
  const int64_t tiles =
      layout.place(call.out.most_tiles * static_cast<int64_t>(sizeof(ExpertTile)));
  const int64_t tile_count = layout.place(4);
  LS_TRY_VOID(make_room(group_memory_, layout.bytes(), stream));
  call.out.order = group_memory_.as<int32_t>(order);
  call.out.tiles = group_memory_.as<ExpertTile>(tiles);
  call.out.tile_count = group_memory_.as<int32_t>(tile_count);
  run_group(call, stream);
  groups_ = call.out;
  grouped_ = inputs.choice;
  return {};
}

Result<void> ExpertRows::multiply(const Inputs& inputs, std::span<const Product> products,
                                  cudaStream_t stream) {
  LS_TRY_VOID(group(inputs, stream));
  const int64_t columns = products[0].weight.columns;
  HalveRowsCall halve;
  halve.x = inputs.x;
  halve.count = inputs.tokens * (inputs.own ? inputs.used : 1) * columns;
  LS_TRY_VOID(make_room(rows_, 4 * halve.count, stream));
  if (numbers_.data() == nullptr) {
    LS_TRY(numbers_, DeviceMemory::allocate((2 + kMostProducts) * 4));
    LS_TRY_VOID(clear_largest(numbers_, stream));
  }
  while (!products.empty()) {
    // Those that one launch takes.
    const WeightView& first = products[0].weight;
    const auto fits = [&](const Product& product) {
      return product.weight.format == first.format && product.weight.rows == first.rows;
    };
    const auto most = std::min<size_t>(products.size(), kMostProducts);
    const auto end = std::find_if_not(products.begin(), products.begin() + most, fits);
    ExpertProductsCall call;
    halve.out = {rows_.data(), is_float(first) ? rows_.data() + 2 * halve.count : nullptr,
                 numbers_.as<uint32_t>() + turn_};
    turn_ = 1 - turn_;
    halve.next_largest = numbers_.as<uint32_t>() + turn_;
    halve.factors = numbers_.as<float>(8);
    halve.weights = 0;
    for (const Product& product : products.first(static_cast<size_t>(end - products.begin()))) {
      LS_TRY(const uint32_t* largest, largest_of(product.weight, stream));
      halve.largest_weight[halve.weights++] = largest;
      call.products[call.count++] = {product.weight, largest, product.bias, product.out};
    }
    run_halve_rows(halve, stream);
    call.rows = first.rows / inputs.experts;
    call.groups = groups_;
    call.x = halve.out;
    call.rows_that_share = inputs.own ? 1 : static_cast<int>(inputs.used);
    call.factors = halve.factors;
    run_expert_products(call, stream);
    products = products.subspan(static_cast<size_t>(end - products.begin()));
  }
  return {};
}

}  // namespace lockstep::exec::cuda
