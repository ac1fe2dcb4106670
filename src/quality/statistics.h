// Numbers of a text's tokens, and how sure they are.
//
// Tokens that stand near each other are not independent: a hard word makes several tokens hard. So
// the unit of chance is a block of consecutive tokens. Blocks are drawn anew, with repetition, as
// many as there are; 95% of such draws lie within the interval (a bootstrap over blocks).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::quality {

inline constexpr int64_t kBlockTokens = 32;

// 95%. NaN where there are fewer than two blocks.
struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

// Values of tokens, and the block that each is in: 0, 0, 0, 1, 1, ...
class Blocks {
 public:
  explicit Blocks(std::vector<int64_t> block_of);

  int64_t tokens() const { return static_cast<int64_t>(block_of_.size()); }
  int64_t count() const { return count_; }

  Interval mean(std::span<const double> values) const;
  // Of exp(mean): perplexity, from the negative logarithms of probabilities.
  Interval exp_of_mean(std::span<const double> values) const;
  // The smallest value that at least this share of the tokens do not exceed.
  Interval quantile(std::span<const double> values, double share) const;

 private:
  std::vector<std::vector<uint32_t>> draws(int64_t most) const;  // how often each block was drawn
  std::vector<double> drawn_means(std::span<const double> values) const;

  std::vector<int64_t> block_of_;
  int64_t count_ = 0;
};

// Block numbers of tokens that stand in runs of these lengths. A run is cut into blocks of about
// kBlockTokens, none of which reaches beyond its run.
std::vector<int64_t> number_blocks(std::span<const int64_t> runs);

}  // namespace lockstep::quality
