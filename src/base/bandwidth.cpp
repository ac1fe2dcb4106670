#include "base/bandwidth.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"

namespace lockstep {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;
constexpr int kMostPasses = 12;
constexpr double kSecondsEnough = 0.5;  // a slow machine does not wait for all passes

struct Free {
  void operator()(uint64_t* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<uint64_t, Free>;

// Huge pages where the system gives them: without, it is the page tables that are measured.
Buffer allocate(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  Buffer buffer(static_cast<uint64_t*>(std::aligned_alloc(size_t{kHugePageBytes}, size)));
  if (buffer != nullptr) madvise(buffer.get(), size, MADV_HUGEPAGE);
  return buffer;
}

// The sum of all words, read at kStreams places in turn: some machines prefetch one stream best,
// others several. Integers, so that any compiler may use vectors.
template <size_t kStreams>
uint64_t sum(std::span<const uint64_t> words) {
  const size_t length = words.size() / kStreams;
  std::array<uint64_t, kStreams> sums{};
  for (size_t i = 0; i < length; ++i)
    for (size_t stream = 0; stream < kStreams; ++stream) sums[stream] += words[stream * length + i];
  uint64_t total = 0;
  for (const uint64_t part : sums) total += part;
  return total;
}

}  // namespace

int64_t bandwidth_buffer_bytes() {
  constexpr int64_t kLeast = int64_t{256} << 20;
  constexpr int64_t kMost = int64_t{2} << 30;
  const int64_t cache = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);  // 0: not known
  return std::min(std::clamp(4 * cache, kLeast, kMost), available_memory_bytes() / 4);
}

Result<Bandwidth> measure_read_bandwidth(int threads, int64_t buffer_bytes) {
  using Clock = std::chrono::steady_clock;
  LS_CHECK(threads > 0);
  const int64_t bytes =
      std::max<int64_t>(1, buffer_bytes / (threads * kHugePageBytes)) * threads * kHugePageBytes;
  // Asked first, since a system that overcommits hands out what it does not have.
  const Buffer buffer = bytes <= available_memory_bytes() ? allocate(bytes) : nullptr;
  if (buffer == nullptr)
    return error("no memory for the {} bytes that measuring its speed takes", bytes);
  const size_t share = static_cast<size_t>(bytes / threads) / sizeof(uint64_t);

  double best_seconds = 0;
  bool enough = false;
  std::atomic<uint64_t> sink = 0;  // keeps the sums from being left out
  std::barrier barrier(threads);
  const auto work = [&](int thread) {
    const std::span<uint64_t> words(buffer.get() + static_cast<size_t>(thread) * share, share);
    std::memset(words.data(), thread, words.size_bytes());  // touched first by its reader
    barrier.arrive_and_wait();
    if (enough) return;
    const auto start = Clock::now();
    for (int pass = 0; pass < kMostPasses; ++pass) {
      const auto pass_start = Clock::now();
      sink += pass % 2 == 0 ? sum<1>(words) : sum<4>(words);
      barrier.arrive_and_wait();
      if (thread == 0) {
        const std::chrono::duration<double> taken = Clock::now() - pass_start;
        const std::chrono::duration<double> all = Clock::now() - start;
        best_seconds = pass == 0 ? taken.count() : std::min(best_seconds, taken.count());
        enough = pass > 0 && all.count() > kSecondsEnough;
      }
      barrier.arrive_and_wait();
      if (enough) break;
    }
  };
  {
    std::vector<std::jthread> helpers;
    helpers.reserve(static_cast<size_t>(threads));
    try {
      for (int thread = 1; thread < threads; ++thread) helpers.emplace_back(work, thread);
      work(0);
    } catch (...) {  // of starting a thread: those that wait already go home
      enough = true;
      static_cast<void>(barrier.arrive(threads - std::ssize(helpers)));
    }
  }
  if (best_seconds == 0) return error("cannot start {} threads", threads);
  return Bandwidth{static_cast<double>(bytes) / std::max(best_seconds, 1e-9), bytes};
}

}  // namespace lockstep
