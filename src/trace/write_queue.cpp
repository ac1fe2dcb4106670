#include "trace/write_queue.h"

#include <chrono>
#include <utility>

#include <sys/resource.h>

#include "base/no_throw.h"

namespace lockstep::trace {
namespace {

// What may wait to be written. Larger than a step of generation of the largest models.
constexpr int64_t kQueueBytes = 256 << 20;

// The writer takes a core from the model for a moment each time it wakes: it does so seldom, when
// this much has come together or this time has passed.
constexpr int64_t kWakeBytes = 16 << 20;
constexpr std::chrono::milliseconds kWakeTime{50};

}  // namespace

std::thread WriteQueue::make_thread(std::function<void()> body) {
  return std::thread(std::move(body));
}

Result<void> WriteQueue::start(const StartThread& start_thread) {
  const Result<void> started = no_throw([&]() -> Result<void> {
    thread_ = start_thread([this] { work(); });
    return {};
  });
  if (started.ok()) return {};
  return error("cannot start the thread that writes: {}", started.error().message);
}

void WriteQueue::push(int64_t bytes, Job job) {
  std::unique_lock lock(mutex_);
  const auto fits = [&] { return queued_bytes_ == 0 || queued_bytes_ + bytes <= kQueueBytes; };
  if (!fits()) {
    wake_.notify_one();
    const auto start = std::chrono::steady_clock::now();
    written_.wait(lock, fits);
    waited_ += std::chrono::steady_clock::now() - start;
  }
  jobs_.push_back({bytes, std::move(job)});
  queued_bytes_ += bytes;
  if (queued_bytes_ >= kWakeBytes) wake_.notify_one();
}

bool WriteQueue::falls_behind() {
  const std::lock_guard lock(mutex_);
  return queued_bytes_ > kQueueBytes / 2;
}

std::chrono::nanoseconds WriteQueue::waited() {
  const std::lock_guard lock(mutex_);
  return waited_;
}

int64_t WriteQueue::waiting_bytes() {
  const std::lock_guard lock(mutex_);
  return queued_bytes_;
}

void WriteQueue::join() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

Result<void> WriteQueue::finish() {
  join();
  return std::exchange(outcome_, {});
}

void WriteQueue::work() {
  // Woken with the model's priority, the writer would push one of its threads to another's core,
  // where both then wait for each other. (On Linux this sets the calling thread's alone.)
  static_cast<void>(::setpriority(PRIO_PROCESS, 0, 10));
  std::unique_lock lock(mutex_);
  while (true) {
    while (jobs_.empty() && !closed_) wake_.wait_for(lock, kWakeTime);
    if (jobs_.empty()) return;
    Item item = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    if (outcome_.ok()) {
      outcome_ = no_throw(item.job);
      failed_ = !outcome_.ok();
    }
    item.job = nullptr;  // its bytes go before the count of them does
    lock.lock();
    queued_bytes_ -= item.bytes;
    written_.notify_one();
  }
}

}  // namespace lockstep::trace
