// Chooses the next token from a row of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "exec/executor.h"

namespace lockstep::engine {

using exec::TokenId;

// Applied in this order: repetition penalty, temperature, top-k, top-p, min-p.
struct Sampling {
  double temperature = 0;      // 0: always the largest logit, ties to the lowest id
  int64_t top_k = 0;           // keep the k largest; 0: all
  double top_p = 1;            // keep the smallest set with this probability together
  double min_p = 0;            // keep those with this part of the largest probability
  double repeat_penalty = 1;   // divides positive logits, multiplies negative ones
  int64_t repeat_window = 64;  // of tokens seen so far, prompt included
  uint64_t seed = 0;

  bool greedy() const { return temperature == 0 && repeat_penalty == 1; }
};

// Names the field and the range where a value is outside.
Result<void> check(const Sampling& sampling);

// The token with the largest logit of a row, of equal ones the first. NaN is never chosen; where
// there is nothing else, that is an error.
Result<TokenId> largest(const View& logits, int64_t row);

class Sampler {
 public:
  // The seed goes through the generator once: neighbours such as 1 and 2 then start far apart.
  explicit Sampler(const Sampling& sampling)
      : sampling_(sampling), random_(Random(sampling.seed).next()) {}

  // `row`: which row of the logits. `history`: all tokens so far. NaN logits are never chosen;
  // where there is nothing else, that is an error.
  Result<TokenId> choose(const View& logits, int64_t row, std::span<const TokenId> history);

 private:
  Sampling sampling_;
  Random random_;
};

}  // namespace lockstep::engine
