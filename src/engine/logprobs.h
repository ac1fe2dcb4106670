// How likely the model held a token, and which others it held likely.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/executor.h"

namespace lockstep::engine {

struct Logprob {
  exec::TokenId id = 0;
  double value = 0;  // natural logarithm of the probability; minus infinity where it is 0
};

// Of the model's own distribution: before penalties, temperature and what sampling leaves out.
struct Logprobs {
  double chosen = 0;
  std::vector<Logprob> top;  // the likeliest first, ties by id
};

Logprobs logprobs_of(const View& logits, int64_t row, exec::TokenId chosen, int64_t top);

}  // namespace lockstep::engine
