// A queue of the device's work, owned.
#pragma once

#include <utility>

#include "exec/cuda/memory.h"

namespace lockstep::exec::cuda {

class Stream {
 public:
  static Result<Stream> create() {
    Stream out;
    LS_TRY_VOID(
        check(cudaStreamCreateWithFlags(&out.stream_, cudaStreamNonBlocking), "cudaStreamCreate"));
    return out;
  }
  Stream() = default;
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  operator cudaStream_t() const { return stream_; }  // NOLINT: that is what it is

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace lockstep::exec::cuda
