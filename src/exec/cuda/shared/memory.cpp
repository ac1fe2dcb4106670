#include "exec/cuda/shared/memory.h"

#include <algorithm>

namespace lockstep::exec::cuda {
namespace {

std::string gigabytes(int64_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

}  // namespace

Result<void> check(cudaError_t code, std::string_view call) {
  if (code == cudaSuccess) return {};
  cudaGetLastError();  // it is told here, and not once more by the next look at a kernel's start
  return error("CUDA: {}: {} ({})", call, cudaGetErrorString(code), cudaGetErrorName(code));
}

Result<void> check_room(int64_t weights_bytes, int64_t cache_bytes, int64_t positions,
                        bool half_cache) {
  size_t free_bytes = 0, total_bytes = 0;
  LS_TRY_VOID(check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo"));
  const auto free = static_cast<int64_t>(free_bytes);
  if (weights_bytes + cache_bytes <= free) return {};
  const int64_t rest = std::max<int64_t>(0, free - weights_bytes);
  const int64_t fits = rest / std::max<int64_t>(1, cache_bytes / positions);
  return error(
      "the GPU has {} free, and {} are needed: {} for the weights and {} for a KV cache of {} "
      "positions; {}",
      gigabytes(free), gigabytes(weights_bytes + cache_bytes), gigabytes(weights_bytes),
      gigabytes(cache_bytes), positions,
      rest == 0   ? std::string("the weights alone do not fit")
      : fits == 0 ? std::string("there is no room for a single position")
                  : fmt::format("try --ctx {}{}", fits, half_cache ? "" : ", or --kv f16"));
}

template <Place P>
Result<Memory<P>> Memory<P>::allocate(int64_t bytes) {
  Memory out;
  if (bytes == 0) return out;
  void* data = nullptr;
  const auto size = static_cast<size_t>(bytes);
  if constexpr (P == Place::kDevice)
    LS_TRY_VOID(check(cudaMalloc(&data, size), fmt::format("cudaMalloc of {} bytes", bytes)));
  else
    LS_TRY_VOID(
        check(cudaMallocHost(&data, size), fmt::format("cudaMallocHost of {} bytes", bytes)));
  out.data_ = static_cast<std::byte*>(data);
  out.bytes_ = bytes;
  return out;
}

template <Place P>
Memory<P>::~Memory() {
  if (data_ == nullptr) return;
  if constexpr (P == Place::kDevice)
    cudaFree(data_);
  else
    cudaFreeHost(data_);
}

template class Memory<Place::kDevice>;
template class Memory<Place::kPinned>;

}  // namespace lockstep::exec::cuda
