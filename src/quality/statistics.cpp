#include "quality/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace lockstep::quality {
namespace {

constexpr int64_t kDraws = 1000;

// The middle 95% of what was drawn.
Interval around(double value, std::vector<double> drawn) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (drawn.empty()) return {value, kNone, kNone};
  std::ranges::sort(drawn);
  const auto at = [&](double share) {
    const auto index = static_cast<size_t>(std::floor(share * static_cast<double>(drawn.size())));
    return drawn[std::min(index, drawn.size() - 1)];
  };
  return {value, at(0.025), at(0.975)};
}

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

Blocks::Blocks(std::vector<int64_t> block_of) : block_of_(std::move(block_of)) {
  LS_CHECK(!block_of_.empty());
  count_ = block_of_.back() + 1;
}

std::vector<std::vector<uint32_t>> Blocks::draws(int64_t most) const {
  std::vector<std::vector<uint32_t>> out;
  if (count_ < 2) return out;
  Random random(20);  // any: every statistic meets the same draws
  for (int64_t i = 0; i < most; ++i) {
    auto& times = out.emplace_back(static_cast<size_t>(count_));
    for (int64_t n = 0; n < count_; ++n) ++times[static_cast<size_t>(random.below(count_))];
  }
  return out;
}

std::vector<double> Blocks::drawn_means(std::span<const double> values) const {
  LS_CHECK(values.size() == block_of_.size());
  std::vector<double> sums(static_cast<size_t>(count_)), sizes(static_cast<size_t>(count_));
  for (size_t i = 0; i < values.size(); ++i) {
    sums[static_cast<size_t>(block_of_[i])] += values[i];
    sizes[static_cast<size_t>(block_of_[i])] += 1;
  }
  std::vector<double> out;
  for (const auto& times : draws(kDraws)) {
    double sum = 0, size = 0;
    for (size_t block = 0; block < times.size(); ++block) {
      sum += times[block] * sums[block];
      size += times[block] * sizes[block];
    }
    out.push_back(sum / size);
  }
  return out;
}

Interval Blocks::mean(std::span<const double> values) const {
  return around(mean_of(values), drawn_means(values));
}

Interval Blocks::exp_of_mean(std::span<const double> values) const {
  Interval out = mean(values);
  return {std::exp(out.value), std::exp(out.low), std::exp(out.high)};
}

Interval Blocks::quantile(std::span<const double> values, double share) const {
  LS_CHECK(values.size() == block_of_.size());
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return values[i]; });
  // Walks up the sorted tokens, each as often as its block was drawn.
  const auto find = [&](const std::vector<uint32_t>& times) {
    double size = 0;
    for (const int64_t block : block_of_) size += times[static_cast<size_t>(block)];
    double seen = 0;
    for (const size_t i : order) {
      seen += times[static_cast<size_t>(block_of_[i])];
      if (seen >= share * size) return values[i];
    }
    return values[order.back()];
  };
  const double value = find(std::vector<uint32_t>(static_cast<size_t>(count_), 1));
  std::vector<double> drawn;
  const int64_t most = std::clamp<int64_t>(200'000'000 / tokens(), 100, kDraws);
  for (const auto& times : draws(most)) drawn.push_back(find(times));
  return around(value, std::move(drawn));
}

std::vector<int64_t> number_blocks(std::span<const int64_t> runs) {
  std::vector<int64_t> out;
  int64_t first = 0;
  for (const int64_t run : runs) {
    const int64_t blocks = std::max<int64_t>(1, (run + kBlockTokens / 2) / kBlockTokens);
    for (int64_t i = 0; i < run; ++i) out.push_back(first + i * blocks / run);
    if (run > 0) first += blocks;
  }
  return out;
}

}  // namespace lockstep::quality
