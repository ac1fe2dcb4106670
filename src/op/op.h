// The ops that a forward pass is made of, as plain data: they can be copied, altered and evaluated
// one by one. What they compute is defined by exec/reference/.
//
// Shapes: a value is [tokens, width], one row a token, unless it says otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "quant/format.h"

namespace lockstep::op {

// A matrix in the model's file, row by row: [rows, columns], the column fastest. Vectors (norm
// weights, biases) are one row.
struct Weight {
  std::string name;
  const quant::FormatInfo* format = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  std::span<const std::byte> data;
  bool mapped = false;  // data is part of a file's map: its pages can be given back
  std::shared_ptr<const std::vector<std::byte>> made{};  // data, where it lies in no file
  // Where the numbers were decoded or altered: the format that an engine has them in.
  const quant::FormatInfo* engine_format = nullptr;

  const quant::FormatInfo& format_in_engine() const {
    return engine_format != nullptr ? *engine_format : *format;
  }

  int64_t row_bytes() const { return quant::size_bytes(*format, columns); }
  const std::byte* row(int64_t index) const { return data.data() + index * row_bytes(); }
};

// out = table[token] or table[position]
struct Embed {
  enum class Index { kToken, kPosition };
  Weight table;
  Index index = Index::kToken;
};

// Each group of `group` numbers is normalized on its own: a whole row, or one head of it.
//   rms:   out = x / sqrt(mean(x^2) + epsilon) * weight
//   layer: out = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias
struct Norm {
  enum class Kind { kRms, kLayer };
  Kind kind = Kind::kRms;
  int64_t group = 0;
  double epsilon = 0;
  Weight weight;  // [group], for all groups, or as wide as the row
  std::optional<Weight> bias;

  // Where in the weight the numbers of a group begin that begins at column `first` of the row.
  int64_t weight_of(int64_t first) const { return weight.columns == group ? 0 : first; }
};

// out = weight · x + bias
struct Linear {
  Weight weight;  // [width of out, width of x]
  std::optional<Weight> bias;
};

// out = x[first, first + width of out)
struct Slice {
  int64_t first = 0;
};

// A part of each head of x: out[head] = x[head][first, first + width). A second input follows it in
// each head: one row of parts, a part for each head or the same for all.
struct HeadParts {
  int64_t heads = 0;
  int64_t first = 0;
  int64_t width = 0;
};

// Rotates pairs of the first `dims` numbers of each head by position * frequency (rope.h).
struct Rope {
  enum class Pairing {
    kAdjacent,  // (0, 1), (2, 3), ...
    kHalves,    // (0, dims/2), (1, dims/2 + 1), ...
  };
  // Extension of the context by YaRN: interpolation for slow pairs, none for fast ones.
  struct Yarn {
    double beta_fast = 32;
    double beta_slow = 1;
    int64_t original_context = 0;
    bool whole_pairs = true;  // the ramp between the two begins and ends at whole pairs
  };
  int64_t head_size = 0;
  int64_t dims = 0;
  Pairing pairing = Pairing::kAdjacent;
  double base = 10000;
  double position_scale = 1;   // linear scaling: positions count as this part of themselves
  std::vector<float> factors;  // [dims / 2] divisors of the frequencies; empty: none
  double magnitude = 1;        // factor of the rotated numbers ("attention factor")
  std::optional<Yarn> yarn;
};

// Appends k and v of this step to the layer's cache, then for each head, over all positions so far:
//   scores = scale * q · k  (soft_cap * tanh(scores / soft_cap) where there is a cap),
//            minus infinity for positions after the token's own or out of its window
//   probs  = softmax(scores), with the head's sink as one more score where there are sinks; the
//            sink's own share is dropped
//   mix    = probs · v
// Inputs q [tokens, heads * head_size], k, v [tokens, kv_heads * ...].
// Outputs mix [tokens, heads * value_size]; scores and probs [heads, tokens, positions].
struct Attention {
  int64_t heads = 0;
  int64_t kv_heads = 0;  // each serves heads / kv_heads consecutive query heads
  int64_t head_size = 0;
  int64_t value_size = 0;
  double scale = 1;
  double soft_cap = 0;            // 0: none
  int64_t window = 0;             // positions seen, the token's own included; 0: all
  std::optional<Weight> sinks{};  // [heads]
};

// out = f(x), times g(y) where there is a second input y (activation.h). g(y) = y but for
// kClampedSwish, whose f(x) = min(x, 7) / (1 + exp(-1.702 min(x, 7))) and g(y) = 1 + y, where y
// stays between -7 and 7.
struct Activate {
  enum class Kind { kSilu, kGeluTanh, kGeluErf, kClampedSwish };
  static constexpr double kLimit = 7;
  static constexpr double kSteepness = 1.702;
  Kind kind = Kind::kSilu;
};

// out = x + y
struct Add {};

// out = factor * x
struct Scale {
  double factor = 1;
};

// out = cap * tanh(x / cap)
struct SoftCap {
  double cap = 1;
};

// Mixtures of experts. A router gives each expert a number, from which a score is made:
//   softmax: exp(x) / sum over all experts of exp(x);  sigmoid: 1 / (1 + exp(-x))
enum class Scoring { kSoftmax, kSigmoid };

// The experts with the largest scores, the largest first; of equal ones the first expert.
// Input [tokens, experts]; output [tokens, experts that are used], whose numbers are experts.
struct Choose {
  Scoring scoring = Scoring::kSoftmax;
  std::optional<Weight> bias;  // [experts], added to the scores for the choice alone
  // Experts stand in so many groups of the same size. Only those of the best `groups_used` can be
  // chosen; a group is as good as the sum of its `group_scores` largest scores, 1 or 2.
  int64_t groups = 1;
  int64_t groups_used = 1;
  int64_t group_scores = 2;
};

// What each chosen expert counts: its score, over the sum of those that were chosen where that is
// asked for, times `scale`. Inputs router, choice; output as wide as the choice.
struct Weigh {
  Scoring scoring = Scoring::kSoftmax;
  bool normalize = true;
  double scale = 1;
};

// The same as Linear, by each chosen expert of a token, one after another:
//   out[slot] = weight[choice[slot]] · x + bias[choice[slot]]
// Inputs x (one for all, or one for each slot), choice. An expert that does not exist gives NaN.
struct ExpertLinear {
  int64_t experts = 0;
  Weight weight;               // [experts * width of a slot of out, width of a slot of x]
  std::optional<Weight> bias;  // [experts, width of a slot of out]

  int64_t rows() const { return weight.rows / experts; }  // of one expert
};

// out = sum over slots of weights[slot] * x[slot]. Inputs weights, x.
struct MixExperts {};

// out = x / (1 + exp(-gate)). Inputs x, gate (one number a token).
struct Gate {};

using What = std::variant<Embed, Norm, Linear, Slice, HeadParts, Rope, Attention, Activate, Add,
                          Scale, SoftCap, Choose, Weigh, ExpertLinear, MixExperts, Gate>;

}  // namespace lockstep::op
