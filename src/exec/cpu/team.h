// Threads that work through a step together.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include <sched.h>

#include "exec/cpu/core_claim.h"

namespace lockstep::exec::cpu {

// The calling thread is member 0; the others are started once and wait, spinning for a moment and
// then asleep, until there is work.
class Team {
 public:
  // Where the system starts no more threads, the team is smaller. `pin`: each helper stays on cores
  // of its own, as far as no other team on this machine has them.
  explicit Team(int size, bool pin = true);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

  // Calls job(member) on every member and returns when all are done. The first exception that one
  // throws ends the job at the others' next meeting and is thrown again here; the team is as
  // before then.
  void run(const std::function<void(int member)>& job);

  // To be called by every member inside a job: nobody goes on before all have come. It leaves the
  // job with an exception of its own where another member failed.
  void meet();

 private:
  struct Left {};  // a member leaves the job since another failed

  void work(int member);
  void take_part(int member);
  bool arrive();
  uint32_t await_change(const std::atomic<uint32_t>& number, uint32_t seen) const;

  int size_ = 1;
  std::atomic<bool> own_cores_{false};  // every helper is bound to cores that no other team has
  cpu_set_t helpers_cores_ = {};
  const std::function<void(int)>* job_ = nullptr;
  std::atomic<uint32_t> job_number_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;  // of the member that set failed_ first
  alignas(64) std::atomic<int> waiting_{0};
  alignas(64) std::atomic<uint32_t> meetings_{0};  // twice their number; odd after a failed one
  std::vector<CoreClaim> cores_;                   // that helpers are bound to
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::exec::cpu
