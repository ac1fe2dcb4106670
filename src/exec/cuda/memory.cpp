#include "exec/cuda/memory.h"

namespace lockstep::exec::cuda {

Result<void> check(cudaError_t code, std::string_view call) {
  if (code == cudaSuccess) return {};
  return error("CUDA: {}: {} ({})", call, cudaGetErrorString(code), cudaGetErrorName(code));
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
