#include "op/experts.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace lockstep::op {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Which groups are taken into account.
std::vector<bool> groups_taken(const Choose& choose, std::span<const double> scores) {
  const auto groups = static_cast<size_t>(choose.groups);
  const size_t size = scores.size() / groups;
  std::vector<double> sums;
  for (size_t group = 0; group < groups; ++group) {
    double first = kNever, second = kNever;
    for (const double score : scores.subspan(group * size, size)) {
      if (score > first)
        second = std::exchange(first, score);
      else
        second = std::max(second, score);
    }
    sums.push_back(size > 1 && choose.group_scores > 1 ? first + second : first);
  }
  std::vector<size_t> order(groups);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return sums[a] > sums[b]; });
  std::vector<bool> out(groups);
  for (size_t i = 0; i < static_cast<size_t>(choose.groups_used); ++i) out[order[i]] = true;
  return out;
}

}  // namespace

Linear expert_of(const ExpertLinear& all, int64_t expert) {
  Linear out{all.weight, all.bias};
  const int64_t rows = all.rows();
  const auto bytes = static_cast<size_t>(rows * all.weight.row_bytes());
  out.weight.rows = rows;
  out.weight.data = all.weight.data.subspan(static_cast<size_t>(expert) * bytes, bytes);
  if (out.bias) {
    const auto bias_bytes = static_cast<size_t>(all.bias->row_bytes());
    out.bias->rows = 1;
    out.bias->data = all.bias->data.subspan(static_cast<size_t>(expert) * bias_bytes, bias_bytes);
  }
  return out;
}

void score_experts(Scoring scoring, std::span<double> router) {
  if (scoring == Scoring::kSigmoid) {
    for (double& number : router) number = 1 / (1 + std::exp(-number));
    return;
  }
  const double largest = *std::ranges::max_element(router);
  double sum = 0;
  for (double& number : router) sum += number = std::exp(number - largest);
  for (double& number : router) number /= sum;
}

void scores_for_choice(const Choose& choose, std::span<const double> bias,
                       std::span<double> router) {
  if (!bias.empty() || choose.groups > 1) score_experts(choose.scoring, router);
  for (size_t i = 0; i < bias.size(); ++i) router[i] += bias[i];
  for (double& number : router)
    if (std::isnan(number)) number = kNever;
}

void choose_experts(const Choose& choose, std::span<const double> scores,
                    std::span<int64_t> choice) {
  std::vector<int64_t> order;
  const std::vector<bool> taken =
      choose.groups > 1 ? groups_taken(choose, scores) : std::vector<bool>{true};
  const size_t size = scores.size() / taken.size();
  for (size_t i = 0; i < scores.size(); ++i)
    if (taken[i / size]) order.push_back(static_cast<int64_t>(i));
  const auto better = [&](int64_t a, int64_t b) {
    const double x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::ranges::partial_sort(order, order.begin() + std::ssize(choice), better);
  std::copy_n(order.begin(), choice.size(), choice.begin());
}

}  // namespace lockstep::op
