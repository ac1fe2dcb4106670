// The GPU itself: whether it is there, and how fast its memory is.
#include <algorithm>
#include <chrono>

#include "exec/cuda/executor.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/shared/stream.h"

namespace lockstep::exec::cuda {

Result<void> available() {
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess)
    return error("no GPU can be used: {}", cudaGetErrorString(code));
  if (count == 0) return error("no GPU was found");
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  if (major * 10 + minor < 75)
    return error("the GPU has compute capability {}.{}; 7.5 is the least", major, minor);
  return {};
}

Result<Bandwidth> read_bandwidth(int) {
  LS_TRY_VOID(available());
  constexpr int64_t kBytes = int64_t{2} << 30;  // far more than the caches
  LS_TRY(const DeviceMemory buffer, DeviceMemory::allocate(kBytes));
  LS_TRY_VOID(check(cudaMemset(buffer.data(), 0, kBytes), "cudaMemset"));
  LS_TRY(const DeviceMemory out, DeviceMemory::allocate(4));
  LS_TRY(const Stream stream, Stream::create());
  Bandwidth best{0, kBytes};
  for (int pass = 0; pass < 8; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 4; ++i) run_read(buffer.data(), kBytes, out.as<uint32_t>(), stream);
    LS_TRY_VOID(check(cudaStreamSynchronize(stream), "reading memory"));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best.bytes_per_second =
        std::max(best.bytes_per_second, 4 * static_cast<double>(kBytes) / seconds.count());
  }
  return best;
}

}  // namespace lockstep::exec::cuda
