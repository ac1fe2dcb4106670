// What rounding does to the routing of a mixture of experts (docs/numerics.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "op/op.h"
#include "parity/arithmetic.h"

namespace lockstep::parity {

// How far each weight of a token moves with each number of the router: [slots, experts].
std::vector<double> slopes_of_weights(const op::Weigh& weigh, std::span<const double> router,
                                      std::span<const double> choice);

// Variances of a token's weights, by rounding.
void weights_variance(const op::Weigh& weigh, std::span<const double> router,
                      std::span<const double> choice, std::span<const double> weights,
                      const Arithmetic& arithmetic, std::span<double> variance);

// What Choose compares, and what rounding may have added to it. `variance`: of the router's
// numbers, where those are not certain; empty: they are.
struct ExpertScores {
  std::vector<double> scores;
  std::vector<double> variances;
};
ExpertScores expert_scores(const op::Choose& choose, std::span<const double> bias,
                           std::span<const double> router, std::span<const double> variance,
                           const Arithmetic& arithmetic);

// A choice beside the scores that it was made by.
struct ExpertChoice {
  double gap = 0;        // by how much an expert is better that was not taken; 0: none is
  double deviation = 0;  // what rounding may have done to that gap
  int64_t slot = 0;      // of the expert that should not have been taken,
  int64_t better =
      -1;  // and the one that should; -1: the choice holds no expert there, or one twice
};
ExpertChoice judge_experts(const op::Choose& choose, const ExpertScores& of,
                           std::span<const double> choice);

// Whether rounding cannot have led to another choice than this one, the best.
bool is_certain(const op::Choose& choose, const ExpertScores& of, std::span<const double> choice);

}  // namespace lockstep::parity
