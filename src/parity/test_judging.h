// Test-only: a small traced model, and compare() on altered copies of its trace.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "parity/compare.h"
#include "parity/test_traces.h"

namespace lockstep::parity {

inline const std::vector<int32_t> kTokens = {3, 141, 59, 26, 53, 58, 97, 93, 23};
inline constexpr int64_t kPrompt = 5;

inline bool any_note(const Comparison& c, std::string_view part) {
  return std::ranges::any_of(
      c.notes, [&](const std::string& n) { return n.find(part) != std::string::npos; });
}

inline const CheckpointResult& find(const Comparison& c, std::string_view name) {
  for (const CheckpointResult& result : c.checkpoints)
    if (result.name == name) return result;
  throw std::runtime_error("no checkpoint " + std::string(name));
}

class JudgingTest : public testing::Test {
 protected:
  Comparison judge(const Recording& a, const Recording& b, bool with_model = true) {
    auto out =
        compare(traced.write(a), traced.write(b), with_model ? &traced.model() : nullptr, options);
    if (!out.ok()) throw std::runtime_error(out.error().message);
    return *out;
  }
  std::string refusal(const Recording& a, const Recording& b) {
    const auto out = compare(traced.write(a), traced.write(b), &traced.model(), options);
    return out.ok() ? "not refused: " + out->verdict : out.error().message;
  }

  TracedModel traced;
  Recording original = traced.record(kTokens, kPrompt);
  CompareOptions options;
};

// Only what `kept` says stays recorded.
template <class F>
Recording only(const Recording& from, const F& kept) {
  Recording out = from;
  for (const std::string& name : std::vector(out.order))
    if (!kept(name)) out.remove(name);
  return out;
}

}  // namespace lockstep::parity
