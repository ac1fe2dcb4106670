// Running a program on an executor and keeping what it computes, for the tests.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "exec/cpu/kernels/targets.h"
#include "exec/registry.h"
#include "executors/op_cases.h"

namespace lockstep {

// Everything that an executor shows, by name; scores as [heads, tokens, positions] of each step.
class Keeper : public op::Observer {
 public:
  explicit Keeper(const op::Program& program) : program_(program) {}
  bool wants(op::ValueId) const override { return true; }
  void see(op::ValueId id, const View& view) override {
    std::vector<double>& kept = values[program_.value(id).name];
    for (int64_t i = 0; i < view.size(); ++i) kept.push_back(view.at(i));
  }

  std::map<std::string, std::vector<double>> values;

 private:
  const op::Program& program_;
};

struct Way {
  std::string device = "reference";
  std::string target = "";  // of the cpu executor; empty: the best
  exec::Options options{};
  std::vector<int64_t> steps = {};  // tokens of each; empty: all at once
  bool watched = false;
  bool all_logits = true;
  bool greedy = false;
};

struct Outcome {
  std::vector<double> logits;  // of all tokens
  std::map<std::string, std::vector<double>> values;
};

// From the positions that the executor is at.
inline Outcome run(exec::Executor& executor, const op::Program& program,
                   std::span<const exec::TokenId> tokens, const Way& way) {
  Outcome out;
  Keeper keeper(program);
  std::vector<int64_t> steps = way.steps;
  const auto count = static_cast<int64_t>(tokens.size());
  if (const int64_t rest = count - std::accumulate(steps.begin(), steps.end(), int64_t{0});
      rest > 0)
    steps.push_back(rest);
  size_t first = 0;
  for (const int64_t step : steps) {
    if (first == tokens.size()) break;
    const auto size = std::min(static_cast<size_t>(step), tokens.size() - first);
    const auto logits = executor.run({tokens.subspan(first, size), way.all_logits,
                                      way.watched ? &keeper : nullptr, nullptr, way.greedy});
    EXPECT_TRUE(logits.ok()) << logits.error().message;
    if (!logits.ok()) return out;
    for (int64_t i = 0; i < logits->size(); ++i) out.logits.push_back(logits->at(i));
    first += size;
  }
  out.values = std::move(keeper.values);
  return out;
}

inline Outcome run(const op::Program& program, std::span<const exec::TokenId> tokens,
                   const Way& way) {
  setenv("LOCKSTEP_CPU_TARGET", way.target.c_str(), 1);
  auto executor = exec::find_device(way.device).value()->create(program, way.options);
  EXPECT_TRUE(executor.ok()) << executor.error().message;
  return executor.ok() ? run(**executor, program, tokens, way) : Outcome{};
}

// Mean square of the difference over that of the expected values; infinite where one is not a
// number and the other is. `usual` is the least mean square that counts: a few sums of many terms
// may all but vanish by chance, their rounding does not.
inline double nmse(const std::vector<double>& actual, const std::vector<double>& expected,
                   double usual = 0) {
  EXPECT_EQ(actual.size(), expected.size());
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, size = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
  }
  for (const double value : expected)
    if (std::isfinite(value)) size += value * value;
  if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  size = std::max(size, usual * static_cast<double>(expected.size()));
  return difference == 0 ? 0 : difference / size;
}

inline bool chooses_experts(const op::Program& program) {
  return std::ranges::any_of(
      program.ops, [](const op::Op& op) { return std::holds_alternative<op::Choose>(op.what); });
}

// How many tokens, from the first on, took the same experts in both: rounding may lead to others,
// which are no small difference. Both were watched, where the program chooses.
inline size_t tokens_alike(const op::Program& program, const Outcome& a, const Outcome& b) {
  size_t alike = a.logits.size() / static_cast<size_t>(program.vocabulary);
  for (const op::Op& op : program.ops) {
    if (!std::holds_alternative<op::Choose>(op.what)) continue;
    const op::Value& value = program.value(op.outputs[0]);
    const auto width = static_cast<size_t>(value.width);
    const auto experts_of = [&](const Outcome& outcome, size_t token) {
      const double* row = outcome.values.at(value.name).data() + token * width;
      return std::multiset<double>(row, row + width);
    };
    for (size_t token = 0; token < alike; ++token)
      if (experts_of(a, token) != experts_of(b, token)) alike = token;
  }
  return alike;
}

// NMSE of the logits of the first tokens.
inline double nmse_of_first(size_t tokens, const op::Program& program, const Outcome& actual,
                            const Outcome& expected) {
  const auto count = static_cast<std::ptrdiff_t>(tokens * static_cast<size_t>(program.vocabulary));
  return nmse({actual.logits.begin(), actual.logits.begin() + count},
              {expected.logits.begin(), expected.logits.begin() + count});
}

// The largest NMSE that this rounding explains.
inline double tolerance(Rounding rounding, bool half_cache) {
  switch (rounding) {
    case Rounding::kNone:
      return 0;
    case Rounding::kFloat:
      return 1e-12;
    case Rounding::kQuantized:
      return 1e-8;
    case Rounding::kCache:
      return half_cache ? 1e-6 : 1e-12;
  }
  return 0;
}

inline void expect_close(const Outcome& actual, const Outcome& expected, double most) {
  ASSERT_EQ(actual.values.size(), expected.values.size());
  for (const auto& [name, values] : expected.values) {
    // Scores of one token are a handful of numbers, and a rounded key may hit them all.
    const bool few = name == "scores";
    EXPECT_LE(nmse(actual.values.at(name), values, few ? 1 : 0), few ? 20 * most : most) << name;
  }
}

inline std::vector<uint64_t> bits(const std::vector<double>& values) {
  std::vector<uint64_t> out;
  for (const double value : values) out.push_back(std::bit_cast<uint64_t>(value));
  return out;
}

inline std::vector<std::string> supported_targets() {
  std::vector<std::string> out;
  for (const exec::cpu::Target& target : exec::cpu::targets())
    if (target.supported()) out.emplace_back(target.name);
  return out;
}

}  // namespace lockstep
