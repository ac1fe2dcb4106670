// One list of op cases for every executor: small programs around one op each, with random weights
// and inputs, odd sizes and edge values.
#pragma once

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "base/random.h"
#include "exec/executor.h"
#include "op/program.h"

namespace lockstep {

// How far a correct executor may be from the reference: rounding of floats alone, of activations
// that meet quantized weights, or of what the KV cache holds.
enum class Rounding { kNone, kFloat, kQuantized, kCache };

struct OpCase {
  std::string name;
  Rounding rounding = Rounding::kFloat;
  std::function<void(class CaseBuilder&)> build;
};

std::vector<OpCase> op_cases();

// A program in the making, and the memory that its weights lie in.
class CaseBuilder {
 public:
  explicit CaseBuilder(uint64_t seed) : random(seed) {}

  // A weight in any format that a file may have it in.
  op::Weight weight(quant::Format format, int64_t rows, int64_t columns, double spread = 1);
  // Sinks of an attention, below and above zero by turns. So some heads always keep probabilities
  // to compare: what large sinks leave of a score is exp of a rounded difference, or nothing.
  op::Weight sinks(int64_t heads, double spread);
  // A row of numbers for each position: the way into a program. `edges` puts zeros of both signs,
  // denormals and large numbers among them.
  op::ValueId input(int64_t width, double spread = 1, bool edges = false);
  op::ValueId add(op::What what, std::vector<op::ValueId> inputs, int64_t width);
  op::ValueId attention(const op::Attention& attention, op::ValueId q, op::ValueId k,
                        op::ValueId v);

  // The program, with the last value as its logits, and `tokens` tokens to run it on.
  const op::Program& finish();

  Random random;
  int64_t tokens = 37;
  std::vector<exec::TokenId> ids;  // [tokens]

 private:
  std::list<std::vector<std::byte>> storage_;
  op::Program program_;
};

}  // namespace lockstep
