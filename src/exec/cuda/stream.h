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

// A place in a queue that can be waited for, owned.
class Event {
 public:
  static Result<Event> create() {
    Event out;
    LS_TRY_VOID(
        check(cudaEventCreateWithFlags(&out.event_, cudaEventDisableTiming), "cudaEventCreate"));
    return out;
  }
  Event() = default;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  operator cudaEvent_t() const { return event_; }  // NOLINT: that is what it is

 private:
  cudaEvent_t event_ = nullptr;
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
