// The tokens that a side chose, held against its own logits and against what it says of sampling.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace lockstep::parity {

// What a manifest says of how tokens were chosen.
struct DeclaredSampling {
  bool known = false;      // enough is said, and nothing that we do not know, to check a choice
  double temperature = 0;  // 0: the largest logit is taken
  int64_t top_k = 0;       // 0: no limit
  double top_p = 1;
  double min_p = 0;
  double repeat_penalty = 1;

  bool operator==(const DeclaredSampling&) const = default;
  bool random() const { return known && temperature > 0; }
};
DeclaredSampling declared_sampling(const nlohmann::ordered_json& sampling);
std::string describe(const DeclaredSampling& sampling);  // "temperature 0.9, top_k 40"

// One choice beside the logits that it was made from.
struct Choice {
  int64_t position = 0;  // whose logits chose
  int32_t token = 0;
  double logit = 0;
  int32_t largest = 0;  // the token with the largest logit, of equal ones the first
  double largest_logit = 0;
  bool is_largest = false;  // no other token has a larger logit
  bool tie = false;         // several tokens share the largest logit, bit for bit
  bool possible = true;     // the declared sampling may have made it
};

// `history`: all tokens before. `unit`: of the type that logits were rounded to after they were
// sampled from; 0: the row holds what was sampled from.
Choice judge_choice(std::span<const double> logits, int32_t token, std::span<const int32_t> history,
                    const DeclaredSampling& sampling, double unit);

// All choices of one side.
struct SideChoices {
  DeclaredSampling sampling;
  int64_t made = 0;                  // tokens that it generated
  int64_t checked = 0;               // of those, with whole logits
  int64_t not_largest = 0;           // of those, choices that are not its own largest logit
  int64_t ties = 0;                  // of those, that several tokens share
  std::optional<Choice> impossible;  // the first that the declared sampling cannot have made
};

// Logits have `whole` numbers or more where they are not cut off.
SideChoices judge_choices(const trace::Trace& trace, int64_t whole, int threads);

// The choice at one position; nothing where its logits were not recorded as a whole.
std::optional<Choice> choice_at(const trace::Trace& trace, int64_t position, int64_t whole);

}  // namespace lockstep::parity
