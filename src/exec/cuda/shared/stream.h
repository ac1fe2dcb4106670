// Queues of the device's work and places in them, owned.
#pragma once

#include <utility>

#include "exec/cuda/shared/memory.h"

namespace lockstep::exec::cuda {

template <class Handle, cudaError_t (*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) kDestroy(handle_);
  }
  operator Handle() const { return handle_; }  // NOLINT: that is what it is

 private:
  Handle handle_ = nullptr;
};

class Stream : public Owned<cudaStream_t, cudaStreamDestroy> {
 public:
  using Owned::Owned;
  static Result<Stream> create() {
    cudaStream_t out = nullptr;
    LS_TRY_VOID(check(cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking), "cudaStreamCreate"));
    return Stream(out);
  }
};

// A place in a stream that can be waited for.
class Event : public Owned<cudaEvent_t, cudaEventDestroy> {
 public:
  using Owned::Owned;
  static Result<Event> create() {
    cudaEvent_t out = nullptr;
    LS_TRY_VOID(check(cudaEventCreateWithFlags(&out, cudaEventDisableTiming), "cudaEventCreate"));
    return Event(out);
  }
};

// Keeps the host from running far ahead of the device, so that what it has enqueued can be
// abandoned soon.
class Pace {
 public:
  // Waits until the device has come to where this was called the time before.
  Result<void> keep_close(cudaStream_t stream) {
    for (Event& event : events_)
      if (event == nullptr) {
        LS_TRY(event, Event::create());
      }
    LS_TRY_VOID(check(cudaEventRecord(events_[next_], stream), "cudaEventRecord"));
    next_ = 1 - next_;
    return check(cudaEventSynchronize(events_[next_]), "cudaEventSynchronize");
  }

 private:
  Event events_[2];
  int next_ = 0;
};

}  // namespace lockstep::exec::cuda
