#include "exec/cpu/team.h"

#include <utility>

#include <pthread.h>
#include <sched.h>

namespace lockstep::exec::cpu {
namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The cores that this process may use, in order.
std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

// Keeps the calling thread off some cores for a while, if it is on one of them and may be
// elsewhere. A helper that is bound to the core where the caller happens to be could only take
// turns with it.
class KeepOff {
 public:
  explicit KeepOff(const cpu_set_t& cores) {
    const int core = sched_getcpu();
    if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET(core, &cores)) return;
    if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    cpu_set_t both, others;
    CPU_AND(&both, &before_, &cores);
    CPU_XOR(&others, &before_, &both);
    if (CPU_COUNT(&others) > 0) moved_ = sched_setaffinity(0, sizeof others, &others) == 0;
  }
  ~KeepOff() {
    if (moved_) sched_setaffinity(0, sizeof before_, &before_);
  }
  KeepOff(const KeepOff&) = delete;
  KeepOff& operator=(const KeepOff&) = delete;

 private:
  cpu_set_t before_ = {};
  bool moved_ = false;
};

}  // namespace

// Waits until the number differs from `seen`. What is waited for mostly comes within microseconds,
// so it pays to spin; where cores are shared, others (perhaps the very thread that is waited for)
// must get their turn, and at last the waiting thread sleeps. A team with cores of its own spins
// longer: a turn that it gave away would go to another program, for milliseconds.
uint32_t Team::await_change(const std::atomic<uint32_t>& number, uint32_t seen) const {
  constexpr int kSpins = 2'000, kYields = 100;
  const int first_yield = own_cores_ ? 50 : 0;
  for (int turn = 0;; ++turn) {
    for (int i = 0; i < kSpins; ++i) {
      if (const uint32_t now = number.load(std::memory_order_acquire); now != seen) return now;
      relax();
    }
    if (turn < first_yield) continue;
    if (turn < first_yield + kYields)
      sched_yield();
    else
      number.wait(seen, std::memory_order_acquire);
  }
}

Team::Team(int size, bool pin) {
  // Each helper stays on a core of its own where there are enough; the caller's thread is not ours
  // to bind.
  const std::vector<int> cores = pin ? usable_cores() : std::vector<int>();
  threads_.reserve(static_cast<size_t>(size));
  cores_.reserve(cores.size());  // nothing may throw once a thread waits
  int bound = 0;
  for (int member = 1; member < size; ++member) {
    try {
      threads_.emplace_back([this, member] { work(member); });
    } catch (...) {  // no memory for its stack, or too many threads: those that there are will do
      break;
    }
    size_ = member + 1;
    if (static_cast<int>(cores.size()) < size) continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t i = 1; i < cores.size(); ++i) {
      if (static_cast<int>(i % static_cast<size_t>(size)) != member % size) continue;
      CoreClaim claim(cores[i]);
      if (!claim.held()) continue;
      CPU_SET(cores[i], &set);
      cores_.push_back(std::move(claim));
    }
    if (CPU_COUNT(&set) == 0 ||
        pthread_setaffinity_np(threads_.back().native_handle(), sizeof set, &set) != 0)
      continue;
    CPU_OR(&helpers_cores_, &helpers_cores_, &set);
    ++bound;
  }
  own_cores_ = size_ > 1 && bound == size_ - 1;
}

Team::~Team() {
  stop_ = true;
  job_number_.fetch_add(1, std::memory_order_release);
  job_number_.notify_all();
}

void Team::run(const std::function<void(int)>& job) {
  if (size_ == 1) return job(0);
  const KeepOff caller(helpers_cores_);
  job_ = &job;
  job_number_.fetch_add(1, std::memory_order_release);
  job_number_.notify_all();
  take_part(0);
  if (!failed_) return;
  failed_ = false;
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

// Every member is at the same meeting at any time, since a job has all of them meet alike. One that
// fails goes to the meeting that the others will come to next, which ends the job for all. A last
// meeting then makes sure that nobody is inside the job any more.
void Team::take_part(int member) {
  try {
    (*job_)(member);
  } catch (const Left&) {
    static_cast<void>(arrive());
    return;
  } catch (...) {
    if (!failed_.exchange(true)) failure_ = std::current_exception();
  }
  if (arrive()) static_cast<void>(arrive());
}

void Team::meet() {
  if (size_ > 1 && arrive()) throw Left{};
}

// Waits for all members. Whether one has failed is decided for all alike, by the last that comes:
// the flag itself may be set by one that has gone on already.
bool Team::arrive() {
  const uint32_t meeting = meetings_.load(std::memory_order_acquire);
  if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    waiting_.store(0, std::memory_order_relaxed);
    const bool failed = failed_;
    meetings_.store((meeting / 2 + 1) * 2 + (failed ? 1 : 0), std::memory_order_release);
    meetings_.notify_all();
    return failed;
  }
  return await_change(meetings_, meeting) % 2 != 0;
}

void Team::work(int member) {
  uint32_t seen = 0;
  while (true) {
    seen = await_change(job_number_, seen);
    if (stop_) return;
    take_part(member);
  }
}

}  // namespace lockstep::exec::cpu
