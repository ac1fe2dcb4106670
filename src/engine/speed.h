// How many tokens a second an executor evaluates.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/executor.h"

namespace lockstep::engine {

// Random tokens from an empty cache: all at once, as Session takes a prompt, or one after another.
struct SpeedTest {
  enum class Kind { kPrompt, kGeneration };
  Kind kind = Kind::kPrompt;
  int64_t tokens = 0;

  std::string name() const;  // "pp128", "tg32"
};

// Tokens a second, one number a run. At least one.
class Speeds {
 public:
  explicit Speeds(std::vector<double> samples);

  const std::vector<double>& samples() const { return samples_; }
  double mean() const;
  double deviation() const;  // of the sample; 0 for one run
  double median() const;

 private:
  std::vector<double> samples_;
};

// Runs `test` once to warm up (of generation, a few tokens) and `repeats` times measured; `on_run`
// is called after each of the repeats + 1, and may be empty. The cache is empty again at the end.
Result<Speeds> measure(exec::Executor& executor, int64_t vocabulary, const SpeedTest& test,
                       int64_t repeats, const std::function<void()>& on_run);

}  // namespace lockstep::engine
