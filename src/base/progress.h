// A progress bar on standard error for long work; silent where standard error is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep {

class Progress {
 public:
  // `unit` is printed after the counts: "MB", "tensors".
  Progress(std::string label, int64_t total, std::string unit);
  ~Progress();  // clears the line

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Call from one thread. `share`: of the time, where that is not the share of the counts.
  void advance(int64_t amount, double share = 0);

  // What is at work now: shown at once.
  void label(std::string text);
  // Clears the line, for other text; it comes back with the next change.
  void hide();

 private:
  void draw(bool force);

  std::string label_;
  std::string unit_;
  int64_t total_;
  int64_t done_ = 0;
  double share_ = 0;
  bool visible_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace lockstep
