// Memory of the device and pinned memory of the host, owned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <cuda_runtime_api.h>

#include "base/result.h"

namespace lockstep::exec::cuda {

// An error names the call and, where there is one, the op that it was made for.
Result<void> check(cudaError_t code, std::string_view call);

// Whether weights and a KV cache of so many positions (of halves, or in single precision) fit into
// what the device has free. An error says what would.
Result<void> check_room(int64_t weights_bytes, int64_t cache_bytes, int64_t positions,
                        bool half_cache);

enum class Place { kDevice, kPinned };

template <Place P>
class Memory {
 public:
  static Result<Memory> allocate(int64_t bytes);
  Memory() = default;
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory();

  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return bytes_; }
  template <class T>
  T* as(int64_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(data_ + offset_bytes);
  }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

using DeviceMemory = Memory<Place::kDevice>;
using PinnedMemory = Memory<Place::kPinned>;

// Shares one allocation out, in steps that every kind of access is aligned to.
class Layout {
 public:
  int64_t place(int64_t bytes) {
    const int64_t at = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int64_t kAlignment = 256;
  int64_t bytes_ = 0;
};

}  // namespace lockstep::exec::cuda
