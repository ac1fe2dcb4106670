// Some numbers of a wrong checkpoint, and what they would be if the engine had rounded something on
// the way: an input, a weight, its cache, a table.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "doctor/grids.h"
#include "exec/reference/matrix.h"
#include "op/program.h"
#include "parity/forward.h"
#include "trace/trace.h"

namespace lockstep::doctor {

using exec::reference::Matrix;

// What is rounded before the op computes; null: nothing.
struct Coarse {
  const Grid* inputs = nullptr;   // all of them; of attention: queries and probabilities
  const Grid* weights = nullptr;  // of Linear
  const Grid* vectors = nullptr;  // biases, and the weights of Norm
  const Grid* keys = nullptr;     // of attention
  const Grid* values = nullptr;
  const Grid* table =
      nullptr;  // argument and result of Activate's function, or of softmax's powers
};

class PrecisionSample {
 public:
  // Whose inputs are recorded, at least at some of the positions; else nothing.
  static std::optional<PrecisionSample> take(const parity::Forward& forward,
                                             const trace::Trace& trace,
                                             std::span<const int32_t> tokens, std::string_view used,
                                             op::ValueId id, std::span<const int64_t> positions,
                                             int threads);

  op::ValueId id() const { return id_; }
  const op::Op& op() const { return *op_; }
  std::span<const int64_t> positions() const { return positions_; }
  const Matrix& recorded() const { return recorded_; }  // a row a position: some of its numbers
  const Matrix& truth() const { return truth_; }
  // Which number of the whole row it is.
  int64_t column(int64_t index) const {
    return columns_.empty() ? index : columns_[static_cast<size_t>(index)];
  }
  // Attention that shows its probabilities may use others: the truth from queries and keys. Empty
  // where that is the same.
  const Matrix& fused_truth() const { return fused_truth_; }
  // Hidden scores and the like are NaN in both.
  Matrix evaluate(const Coarse& coarse) const;
  bool has_float_weights() const;  // that are finer than half precision

 private:
  struct Attended {  // by position
    Matrix q;
    Matrix k;
    Matrix v;
    Matrix scores;  // recorded: [heads, positions]; empty: they were not, or are the result
    Matrix probs;
  };

  Matrix linear(const Coarse& coarse) const;
  Matrix attention(const Coarse& coarse, bool fused) const;
  Matrix activation(const Coarse& coarse) const;
  Matrix others(const Coarse& coarse) const;
  bool take_attention(const trace::Trace& trace, const op::Program& program);
  std::optional<Matrix> read(const trace::Trace& trace, const op::Value& value,
                             std::span<const int64_t> positions) const;

  op::ValueId id_ = -1;
  std::shared_ptr<const op::Op> op_;  // a slice of a fused product: the product of these rows
  size_t output_ = 0;                 // of its op
  int64_t width_ = 0;
  int threads_ = 1;
  std::string_view used_;
  std::vector<int64_t> positions_;
  std::vector<int32_t> tokens_;  // of those
  std::vector<Matrix> inputs_;
  std::vector<double> largest_;   // of Linear's input, in the step of each position
  std::vector<int64_t> columns_;  // of Linear's result that are here
  Matrix weights_;                // their rows
  std::vector<double> bias_;
  std::vector<Attended> attended_;
  Matrix recorded_;
  Matrix truth_;
  Matrix fused_truth_;
};

}  // namespace lockstep::doctor
