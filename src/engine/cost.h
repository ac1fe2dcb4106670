// What a forward pass has to read and to multiply, counted from its program: speed is held against
// it.
#pragma once

#include <cstdint>
#include <string_view>

#include "op/program.h"

namespace lockstep::engine {

// Bytes that one token of generation reads. Weights count as they lie in the file, each once; an
// executor that keeps them in another form may read more or less.
struct Traffic {
  int64_t weight_bytes = 0;
  double kv_bytes = 0;  // the mean over the tokens

  double bytes() const { return static_cast<double>(weight_bytes) + kv_bytes; }
};

// `tokens` tokens one after another from an empty cache, whose numbers are `kv` ("f16", as an
// executor's precision says).
Traffic generation_traffic(const op::Program& program, int64_t tokens, std::string_view kv);

// Multiplications, each with its addition, of matrices and attention for `tokens` tokens from an
// empty cache, with logits for the last one only.
double prompt_multiply_adds(const op::Program& program, int64_t tokens);

}  // namespace lockstep::engine
