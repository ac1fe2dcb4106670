#include "engine/speed.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "engine/sampler.h"
#include "engine/session.h"

namespace lockstep::engine {
namespace {

constexpr size_t kWarmUpTokens = 16;

// After the first token, each is the one with the largest logit.
Result<void> generate(exec::Executor& executor, TokenId token, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    exec::Step step;
    step.tokens = {&token, 1};
    step.greedy = i + 1 < count;
    LS_TRY(const View logits, evaluate(executor, step));
    LS_TRY(token, largest(logits, 0));
  }
  return {};
}

// Seconds of one run.
Result<double> time_run(exec::Executor& executor, SpeedTest::Kind kind,
                        std::span<const TokenId> tokens) {
  executor.rewind(0);
  const auto start = std::chrono::steady_clock::now();
  if (kind == SpeedTest::Kind::kPrompt) {
    exec::Step step;
    step.tokens = tokens;
    LS_TRY_VOID(evaluate(executor, step));
  } else {
    LS_TRY_VOID(generate(executor, tokens[0], tokens.size()));
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  executor.rewind(0);
  return std::max(taken.count(), 1e-9);
}

}  // namespace

std::string SpeedTest::name() const {
  return fmt::format("{}{}", kind == Kind::kPrompt ? "pp" : "tg", tokens);
}

Speeds::Speeds(std::vector<double> samples) : samples_(std::move(samples)) {
  LS_CHECK(!samples_.empty());
}

double Speeds::mean() const {
  return std::accumulate(samples_.begin(), samples_.end(), 0.0) /
         static_cast<double>(samples_.size());
}

double Speeds::deviation() const {
  if (samples_.size() < 2) return 0;
  const double middle = mean();
  double squares = 0;
  for (const double sample : samples_) squares += (sample - middle) * (sample - middle);
  return std::sqrt(squares / static_cast<double>(samples_.size() - 1));
}

double Speeds::median() const {
  std::vector<double> sorted = samples_;
  std::ranges::sort(sorted);
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

Result<Speeds> measure(exec::Executor& executor, int64_t vocabulary, const SpeedTest& test,
                       int64_t repeats, const std::function<void()>& on_run) {
  LS_CHECK(repeats > 0 && test.tokens > 0 && vocabulary > 0);
  Random random(static_cast<uint64_t>(test.tokens));
  std::vector<TokenId> tokens(static_cast<size_t>(test.tokens));
  std::vector<double> speeds;
  for (int64_t run = 0; run <= repeats; ++run) {
    for (TokenId& token : tokens) token = static_cast<TokenId>(random.below(vocabulary));
    const bool warm_up = run == 0;
    const bool few = warm_up && test.kind == SpeedTest::Kind::kGeneration;
    const auto used = std::span<const TokenId>(tokens).first(
        few ? std::min(tokens.size(), kWarmUpTokens) : tokens.size());
    LS_TRY(const double seconds, time_run(executor, test.kind, used));
    if (!warm_up) speeds.push_back(static_cast<double>(test.tokens) / seconds);
    if (on_run) on_run();
  }
  return Speeds(std::move(speeds));
}

}  // namespace lockstep::engine
