// A thread that writes, and what waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/result.h"

namespace lockstep::trace {

// Runs jobs in order on a thread of its own. Jobs carry bytes; push waits while too many are under
// way. After the first failure, which an exception is too, jobs are thrown away.
class WriteQueue {
 public:
  using Job = std::function<Result<void>()>;
  using StartThread = std::function<std::thread(std::function<void()> body)>;

  WriteQueue() = default;
  ~WriteQueue() { join(); }
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  // Once, before anything else. The system may have no thread left.
  Result<void> start(const StartThread& start_thread = make_thread);

  // Throws where there is no memory for it; the job is not taken then.
  void push(int64_t bytes, Job job);

  bool falls_behind();
  // How long push has waited, in all.
  std::chrono::nanoseconds waited();
  int64_t waiting_bytes();  // with those of the job that runs
  bool failed() const { return failed_; }

  // Waits until everything is written, and tells what failed, once. Nothing may be pushed
  // afterwards.
  Result<void> finish();

 private:
  struct Item {
    int64_t bytes;
    Job job;
  };

  static std::thread make_thread(std::function<void()> body);
  void work();
  void join();

  std::mutex mutex_;
  std::condition_variable wake_, written_;
  std::deque<Item> jobs_;
  int64_t queued_bytes_ = 0;
  std::chrono::nanoseconds waited_{0};
  bool closed_ = false;
  Result<void> outcome_;  // of the jobs; the thread's until the join
  std::atomic<bool> failed_ = false;
  std::thread thread_;
};

}  // namespace lockstep::trace
