// One expert of many, and who chose it.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "op/op.h"

namespace lockstep::op {

// A Linear that is one of the experts: its part of the weights.
Linear expert_of(const ExpertLinear& all, int64_t expert);

// The expert that a number of a choice means, or -1: recorded choices can hold anything.
inline int64_t chosen_expert(double number, int64_t experts) {
  const bool is_one =
      number >= 0 && number < static_cast<double>(experts) && number == std::floor(number);
  return is_one ? static_cast<int64_t>(number) : -1;
}

// A chosen expert of a token.
struct Slot {
  int64_t token = 0;  // a row of the choice
  int64_t slot = 0;   // and a column
};

// By expert: who chose it, in order of tokens. `choice` is [tokens, used].
template <class T>
std::vector<std::vector<Slot>> slots_by_expert(std::span<const T> choice, int64_t used,
                                               int64_t experts) {
  std::vector<std::vector<Slot>> out(static_cast<size_t>(experts));
  for (size_t i = 0; i < choice.size(); ++i) {
    const int64_t expert = chosen_expert(static_cast<double>(choice[i]), experts);
    const auto place = static_cast<int64_t>(i);
    if (expert >= 0) out[static_cast<size_t>(expert)].push_back({place / used, place % used});
  }
  return out;
}

// The scores of a token's experts, in place of the router's numbers.
void score_experts(Scoring scoring, std::span<double> router);

// What Choose compares: the router's numbers themselves where their order is that of the scores,
// else the scores with the bias (empty: none). What is no number is less than all that are.
void scores_for_choice(const Choose& choose, std::span<const double> bias,
                       std::span<double> router);

// The experts that Choose takes, from what it compares, into `choice`.
void choose_experts(const Choose& choose, std::span<const double> scores,
                    std::span<int64_t> choice);

}  // namespace lockstep::op
