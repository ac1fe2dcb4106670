#include "base/parallel.h"

#include <algorithm>
#include <atomic>
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
  const auto work = [&] {
    try {
      for (int64_t begin = 0, end = 0; take(begin, end);) body(begin, end);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      next = count;  // the others need not go on
    }
  };
  std::vector<std::jthread> helpers;
  try {
    for (int64_t i = 1; i < workers; ++i) helpers.emplace_back(work);
  } catch (...) {  // no more threads, or no memory for one: those that there are will do
  }
  work();
  helpers.clear();  // joins
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
