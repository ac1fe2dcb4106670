// Threads that work through a step together.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace lockstep::exec::cpu {

// The calling thread is member 0; the others are started once and wait, spinning for a moment and
// then asleep, until there is work.
class Team {
 public:
  explicit Team(int size);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

  // Calls job(member) on every member and returns when all are done.
  void run(const std::function<void(int member)>& job);

  // To be called by every member inside a job: nobody goes on before all have come.
  void meet();

 private:
  void work(int member);

  const int size_;
  const std::function<void(int)>* job_ = nullptr;
  std::atomic<uint32_t> job_number_{0};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<int> waiting_{0};
  alignas(64) std::atomic<uint32_t> meetings_{0};
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::exec::cpu
