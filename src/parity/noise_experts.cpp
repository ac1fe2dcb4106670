#include "parity/noise_experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "op/experts.h"
#include "parity/own_error.h"
#include "parity/rounding.h"

namespace lockstep::parity {
namespace {

constexpr double kNotAChoice = std::numeric_limits<double>::infinity();

// Relative, squared: of a score, whose function is approximated in single precision at best. The
// argument's own rounding counts as often as the argument is large.
double of_score(op::Scoring scoring, double x, double largest, double score, const Arithmetic& a) {
  const double function = std::max(a.compute, kSingle);
  const double handed = std::max(a.activations, a.compute);
  const double argument = scoring == op::Scoring::kSoftmax ? x - largest : x * (1 - score);
  return (9 * square(function) + square(argument * function) + square(handed)) * kThird +
         square(tiny(handed) / std::max(score, std::numeric_limits<double>::min()));
}

// The groups that a choice may come from: those that it does come from, and the best of the others.
struct ExpertGroups {
  std::vector<double> scores;
  std::vector<double> variances;
  std::vector<bool> allowed;
  std::vector<bool> chosen;  // some expert of the group is
};

ExpertGroups expert_groups(const op::Choose& choose, const ExpertScores& of,
                           std::span<const int64_t> chosen) {
  const auto count = static_cast<size_t>(choose.groups);
  const size_t size = of.scores.size() / count;
  ExpertGroups out;
  out.allowed.resize(count);
  for (size_t group = 0; group < count; ++group) {
    std::vector<size_t> order(size);
    std::iota(order.begin(), order.end(), group * size);
    const size_t best = std::min(static_cast<size_t>(choose.group_scores), size);
    std::ranges::partial_sort(order, order.begin() + static_cast<long>(best), std::greater{},
                              [&](size_t i) { return of.scores[i]; });
    double score = 0, variance = 0;
    for (size_t i = 0; i < best; ++i) {
      score += of.scores[order[i]];
      variance += of.variances[order[i]];
    }
    out.scores.push_back(score);
    out.variances.push_back(variance);
  }
  for (const int64_t expert : chosen) out.allowed[static_cast<size_t>(expert) / size] = true;
  out.chosen = out.allowed;
  for (auto used = std::ranges::count(out.allowed, true); used < choose.groups_used; ++used) {
    size_t best = count;
    for (size_t group = 0; group < count; ++group)
      if (!out.allowed[group] && (best == count || out.scores[group] > out.scores[best]))
        best = group;
    out.allowed[best] = true;
  }
  return out;
}

// Keeps the pair that rounding explains least.
void hold_pair(double better, double better_variance, double taken, double taken_variance,
               int64_t slot, int64_t expert, ExpertChoice& out) {
  if (!(better > taken)) return;
  const double gap = better - taken;
  const double deviation = std::sqrt(better_variance + taken_variance);
  if (out.gap > 0 && gap * out.deviation <= out.gap * deviation) return;
  out = {gap, deviation, slot, expert};
}

}  // namespace

std::vector<double> slopes_of_weights(const op::Weigh& weigh, std::span<const double> router,
                                      std::span<const double> choice) {
  const size_t experts = router.size();
  std::vector<double> scores(router.begin(), router.end());
  op::score_experts(weigh.scoring, scores);
  std::vector<int64_t> chosen;
  double sum = 0;
  for (const double number : choice) {
    chosen.push_back(op::chosen_expert(number, static_cast<int64_t>(experts)));
    if (chosen.back() >= 0) sum += scores[static_cast<size_t>(chosen.back())];
  }
  // Relative slopes: of a score by its own number, and of the divisor by all.
  const bool softmax = weigh.scoring == op::Scoring::kSoftmax;
  std::vector<double> of_divisor(experts);
  if (weigh.normalize) {
    for (const int64_t expert : chosen) {
      if (expert < 0) continue;
      const auto e = static_cast<size_t>(expert);
      of_divisor[e] = scores[e] / sum * (softmax ? 1 : 1 - scores[e]);
    }
  } else if (softmax) {
    of_divisor = scores;
  }
  std::vector<double> out(choice.size() * experts);
  for (size_t slot = 0; slot < choice.size(); ++slot) {
    if (chosen[slot] < 0) continue;
    const auto own = static_cast<size_t>(chosen[slot]);
    const double weight = weigh.scale * scores[own] / (weigh.normalize ? sum : 1);
    for (size_t e = 0; e < experts; ++e) {
      const double of_score = e != own ? 0 : softmax ? 1 : 1 - scores[own];
      out[slot * experts + e] = weight * (of_score - of_divisor[e]);
    }
  }
  return out;
}

void weights_variance(const op::Weigh& weigh, std::span<const double> router,
                      std::span<const double> choice, std::span<const double> weights,
                      const Arithmetic& a, std::span<double> variance) {
  const double largest = *std::ranges::max_element(router);
  std::vector<double> scores(router.begin(), router.end());
  op::score_experts(weigh.scoring, scores);
  const std::vector<double> slopes = slopes_of_weights(weigh, router, choice);
  double of_divisor = 0;  // relative: each chosen score counts by its share
  double sum = 0;
  std::vector<double> relative(weights.size());
  for (size_t slot = 0; slot < weights.size(); ++slot) {
    const int64_t expert = op::chosen_expert(choice[slot], std::ssize(router));
    if (expert < 0) continue;
    const auto e = static_cast<size_t>(expert);
    relative[slot] = of_score(weigh.scoring, router[e], largest, scores[e], a);
    of_divisor += square(scores[e]) * relative[slot];
    sum += scores[e];
  }
  if (weigh.normalize && sum > 0) of_divisor /= square(sum);
  for (size_t slot = 0; slot < weights.size(); ++slot) {
    double v = square(weights[slot]) * (relative[slot] + of_divisor +
                                        4 * square(std::max(a.compute, kSingle)) * kThird) +
               handed_on(weights[slot], a);
    if (a.operands() > a.compute)
      for (size_t e = 0; e < router.size(); ++e)
        v += rounded_once(slopes[slot * router.size() + e] * router[e], a.operands());
    variance[slot] = v;
  }
}

ExpertScores expert_scores(const op::Choose& choose, std::span<const double> bias,
                           std::span<const double> router, std::span<const double> variance,
                           const Arithmetic& a) {
  ExpertScores out;
  out.scores.assign(router.begin(), router.end());
  op::scores_for_choice(choose, bias, out.scores);
  std::vector<double> scores(router.begin(), router.end());
  op::score_experts(choose.scoring, scores);
  const double largest = *std::ranges::max_element(router);
  const bool plain = bias.empty() && choose.groups <= 1;  // the router's numbers are compared
  for (size_t e = 0; e < router.size(); ++e) {
    const bool softmax = choose.scoring == op::Scoring::kSoftmax;
    const double slope = plain ? 1 : scores[e] * (1 - scores[e]);
    // What rounding does to a score, as if it had been done to the router's number.
    const double relative = of_score(choose.scoring, router[e], largest, scores[e], a);
    const double by_number =
        plain && !softmax ? relative / square(std::max(1 - scores[e], 1e-30)) : relative;
    double v = plain ? by_number : square(scores[e]) * relative;
    if (!bias.empty()) v += handed_on(out.scores[e], a);
    v += of_operand(slope * router[e], a);
    if (!variance.empty()) v += square(slope) * variance[e];
    out.variances.push_back(std::isfinite(v) ? v : 0);
  }
  return out;
}

namespace {

// Calls f(taken, its slot, other, whether by their groups) for each expert that was not chosen
// beside each that was.
template <class F>
void for_each_pair(const ExpertGroups& groups, int64_t group_size, int64_t experts,
                   std::span<const int64_t> chosen, const F& f) {
  for (int64_t expert = 0; expert < experts; ++expert) {
    if (std::ranges::find(chosen, expert) != chosen.end()) continue;
    for (size_t slot = 0; slot < chosen.size(); ++slot)
      f(chosen[slot], static_cast<int64_t>(slot), expert,
        !groups.allowed[static_cast<size_t>(expert / group_size)]);
  }
}

// An expert's score and its variance, or those of its whole group.
struct ScoreAndVariance {
  double score, variance;
};
ScoreAndVariance standing_of(const ExpertScores& of, const ExpertGroups& groups, int64_t group_size,
                             int64_t expert, bool by_group) {
  const auto e = static_cast<size_t>(expert), g = static_cast<size_t>(expert / group_size);
  if (by_group) return {groups.scores[g], groups.variances[g]};
  return {of.scores[e], of.variances[e]};
}

}  // namespace

ExpertChoice judge_experts(const op::Choose& choose, const ExpertScores& of,
                           std::span<const double> choice) {
  const auto experts = std::ssize(of.scores);
  std::vector<int64_t> chosen;
  for (size_t slot = 0; slot < choice.size(); ++slot) {
    const int64_t expert = op::chosen_expert(choice[slot], experts);
    if (expert < 0 || std::ranges::find(chosen, expert) != chosen.end())
      return {kNotAChoice, 0, static_cast<int64_t>(slot), -1};
    chosen.push_back(expert);
  }
  const ExpertGroups groups = expert_groups(choose, of, chosen);
  if (std::ranges::count(groups.chosen, true) > choose.groups_used)
    return {kNotAChoice, 0, std::ssize(chosen) - 1, -1};
  const int64_t size = experts / choose.groups;
  ExpertChoice out;
  for_each_pair(groups, size, experts, chosen,
                [&](int64_t taken, int64_t slot, int64_t other, bool by_group) {
                  const ScoreAndVariance better = standing_of(of, groups, size, other, by_group);
                  const ScoreAndVariance own = standing_of(of, groups, size, taken, by_group);
                  hold_pair(better.score, better.variance, own.score, own.variance, slot, other,
                            out);
                });
  return out;
}

bool is_certain(const op::Choose& choose, const ExpertScores& of, std::span<const double> choice) {
  const auto experts = std::ssize(of.scores);
  std::vector<int64_t> chosen;
  for (const double number : choice) chosen.push_back(op::chosen_expert(number, experts));
  const ExpertGroups groups = expert_groups(choose, of, chosen);
  const int64_t size = experts / choose.groups;
  bool certain = true;
  for_each_pair(groups, size, experts, chosen,
                [&](int64_t taken, int64_t, int64_t other, bool by_group) {
                  const ScoreAndVariance a = standing_of(of, groups, size, taken, by_group);
                  const ScoreAndVariance b = standing_of(of, groups, size, other, by_group);
                  const double deviation = std::sqrt(a.variance + b.variance);
                  if (!(a.score - b.score > kElementLimit * deviation)) certain = false;
                });
  return certain;
}

}  // namespace lockstep::parity
