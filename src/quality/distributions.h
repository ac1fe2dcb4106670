// Two models' probabilities of the next token, side by side.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/view.h"
#include "exec/executor.h"

namespace lockstep::quality {

// Of one token of the text. Logarithms are natural ones.
struct TokenScore {
  double reference = 0;  // minus the logarithm of the probability that the reference gave it
  double suspect = 0;
  double kl = 0;      // sum over tokens of p * log(p / q): p the reference's, q the suspect's
  bool same = false;  // both hold the same token the likeliest
};

// Rows of logits [rows, vocabulary].
struct LogitRows {
  std::vector<float> values;
  int64_t vocabulary = 0;

  int64_t rows() const { return static_cast<int64_t>(values.size()) / vocabulary; }
  std::span<const float> row(int64_t index) const {
    return std::span(values).subspan(static_cast<size_t>(index * vocabulary),
                                     static_cast<size_t>(vocabulary));
  }
  void append(const View& logits);
};

// How likely the token was, and both distributions' distance.
TokenScore score(std::span<const float> reference, std::span<const float> suspect,
                 exec::TokenId token);

// The logits of an executor from a window's tokens: rows for those that are scored.
Result<LogitRows> scored_logits(exec::Executor& executor, std::span<const exec::TokenId> tokens,
                                int64_t first_scored, op::Observer* observer = nullptr);

// Others than finite ones give no probabilities; `path` is for the message.
Result<void> check_finite(const LogitRows& logits, const std::string& path);

// A score for each row, in order.
std::vector<TokenScore> score_rows(const LogitRows& reference, const LogitRows& suspect,
                                   std::span<const exec::TokenId> tokens, int threads);

}  // namespace lockstep::quality
