#include <numeric>

#include "exec/cuda/kernels.h"
#include "exec/cuda/weights/weights.h"

namespace lockstep::exec::cuda {

Result<std::vector<float>> Weights::read_back(const op::Weight& weight, int64_t first,
                                              int64_t rows) const {
  std::vector<float> out(static_cast<size_t>(rows * weight.columns));
  const size_t bytes = out.size() * sizeof(float);
  const auto fetch = [&](const void* from) {
    return check(cudaMemcpy(out.data(), from, bytes, cudaMemcpyDeviceToHost),
                 "cudaMemcpy of " + weight.name);
  };
  const auto matrix = matrices_.find(key(weight));
  if (matrix == matrices_.end()) {
    LS_TRY_VOID(fetch(vector(weight) + first * weight.columns));
    return out;
  }
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  std::iota(ids.begin(), ids.end(), static_cast<int32_t>(first));
  LS_TRY(const DeviceMemory device_ids, DeviceMemory::allocate(rows * 4));
  LS_TRY(const DeviceMemory numbers, DeviceMemory::allocate(static_cast<int64_t>(bytes)));
  LS_TRY_VOID(check(cudaMemcpy(device_ids.data(), ids.data(), ids.size() * sizeof(int32_t),
                               cudaMemcpyHostToDevice),
                    "cudaMemcpy of row numbers"));
  EmbedCall call;
  call.table = matrix->second.view;
  call.token_ids = device_ids.as<int32_t>();
  call.out = numbers.as<float>();
  call.tokens = rows;
  run_embed(call, nullptr);
  LS_TRY_VOID(check(cudaPeekAtLastError(), "decoding " + weight.name));
  LS_TRY_VOID(fetch(numbers.data()));
  return out;
}

}  // namespace lockstep::exec::cuda
