#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <sched.h>

namespace lockstep {

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

namespace {

// Work that threads may join as long as its owner is at it. The owner does all that nobody else
// takes, so that no work waits for a thread.
struct Shared {
  const std::function<void()>& work;
  int64_t wanted;      // more threads
  int64_t inside = 0;  // threads at work
};

// Threads that wait for work: starting one for each piece would take longer than many pieces do.
// They are never joined, and so wait until the process ends.
class Helpers {
 public:
  void run(const std::function<void()>& work, int64_t helpers) {
    Shared shared{work, helpers};
    std::unique_lock lock(mutex_);
    start(helpers);
    shared_.push_back(&shared);
    for (int64_t i = 0; i < helpers; ++i) work_.notify_one();
    lock.unlock();
    work();
    lock.lock();
    std::erase(shared_, &shared);
    done_.wait(lock, [&] { return shared.inside == 0; });
  }

 private:
  void start(int64_t count) {
    try {
      for (; count_ < count; ++count_) std::thread([this] { help(); }).detach();
    } catch (...) {  // no more threads, or no memory for one: those that there are will do
    }
  }

  void help() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto found =
          std::ranges::find_if(shared_, [](const Shared* each) { return each->wanted > 0; });
      if (found == shared_.end()) {
        work_.wait(lock);
        continue;
      }
      Shared& shared = **found;
      --shared.wanted;
      ++shared.inside;
      lock.unlock();
      shared.work();
      lock.lock();
      if (--shared.inside == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::vector<Shared*> shared_;
  int64_t count_ = 0;
};

Helpers& helpers() {
  static auto& out = *new Helpers;
  return out;
}

}  // namespace

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body,
                  int threads) {
  if (count <= 0) return;
  const int64_t most = (count + grain - 1) / grain;
  const int64_t workers = std::min<int64_t>(threads, most);
  if (workers <= 1) {
    body(0, count);
    return;
  }
  // Ranges are taken in turn and get shorter, so that no worker waits long for the last one.
  constexpr int64_t kParts = 3;
  std::atomic<int64_t> next{0};
  const auto take = [&](int64_t& begin, int64_t& end) {
    begin = next.load();
    do {
      if (begin >= count) return false;
      end = std::min(count, begin + std::max(grain, (count - begin) / (workers * kParts)));
    } while (!next.compare_exchange_weak(begin, end));
    return true;
  };
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const std::function<void()> work = [&] {
    try {
      for (int64_t begin = 0, end = 0; take(begin, end);) body(begin, end);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      next = count;  // the others need not go on
    }
  };
  helpers().run(work, workers - 1);
  if (failure) std::rethrow_exception(failure);
}

void parallel_rows(int64_t rows, int64_t columns, int threads,
                   const std::function<void(int64_t row)>& body) {
  constexpr int64_t kWorthAThread = 1 << 15;  // numbers
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  };
  parallel_for(rows, std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(1, columns)), some,
               threads);
}

}  // namespace lockstep
