#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
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
  const Shared* part_of;  // the work that began this one; null: none
  int64_t wanted;         // more threads
  int64_t inside = 0;     // threads at work

  bool is_part_of(const Shared& other) const {
    const Shared* each = part_of;
    while (each != nullptr && each != &other) each = each->part_of;
    return each != nullptr;
  }
};

// What this thread is at.
thread_local const Shared* current = nullptr;

// Threads that wait for work: starting one for each piece would take longer than many pieces do.
// They are never joined, and so wait until the process ends.
class Helpers {
 public:
  void run(const std::function<void()>& work, int64_t helpers) {
    Shared shared{work, current, helpers};
    std::unique_lock lock(mutex_);
    start(helpers);
    shared_.push_back(&shared);
    for (int64_t i = 0; i < helpers; ++i) work_.notify_one();
    waiting_.notify_all();
    lock.unlock();
    do_work(shared);
    lock.lock();
    std::erase(shared_, &shared);
    // The others may have begun work that a thread is wanted for. No other work is joined here: it
    // might need what the caller holds, such as a lock.
    while (shared.inside > 0) {
      Shared* part = find([&](const Shared& each) { return each.is_part_of(shared); });
      part != nullptr ? join(*part, lock) : waiting_.wait(lock);
    }
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
      Shared* found = find([](const Shared&) { return true; });
      found != nullptr ? join(*found, lock) : work_.wait(lock);
    }
  }

  template <class Suits>
  Shared* find(const Suits& suits) const {
    const auto found = std::ranges::find_if(
        shared_, [&](const Shared* each) { return each->wanted > 0 && suits(*each); });
    return found != shared_.end() ? *found : nullptr;
  }

  void join(Shared& shared, std::unique_lock<std::mutex>& lock) {
    --shared.wanted;
    ++shared.inside;
    lock.unlock();
    do_work(shared);
    lock.lock();
    if (--shared.inside == 0) waiting_.notify_all();
  }

  static void do_work(const Shared& shared) {
    const Shared* before = std::exchange(current, &shared);
    shared.work();
    current = before;
  }

  std::mutex mutex_;
  std::condition_variable work_;     // helpers without work
  std::condition_variable waiting_;  // owners whose work is not done
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
