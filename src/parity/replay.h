// Replays ops in double precision from the values that an engine recorded, and tells how far its
// recorded results are from what they should have been: each op's own error, against what rounding
// explains.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "op/program.h"
#include "parity/arithmetic.h"
#include "parity/noise.h"
#include "trace/trace.h"

namespace lockstep::parity {

// A row's own error is a defect where its root mean square is this many times what rounding is
// expected to give in the worst honest order of summation, or a single element's this many times
// its own share (docs/numerics.md).
inline constexpr double kRowLimit = 4;
inline constexpr double kElementLimit = 16;

// One checkpoint at one position.
struct OwnError {
  int64_t position = 0;
  double error = 0;         // root mean square of recorded - replayed
  double expected = 0;      // root mean square of the rounding error of an honest engine
  int64_t worst_index = 0;  // of the element with the largest error over its own expectation
  double worst_ratio = 0;
  double recorded = 0;      // that element, as recorded
  double replayed = 0;      // and as it should have been
  bool non_finite = false;  // a NaN or infinity that the inputs do not explain

  double ratio() const;  // error over bound: more than 1 is a defect
  bool defect() const { return non_finite || ratio() > 1; }
};

class Replay {
 public:
  // `tokens`: of every position. The program's weights are the truth.
  Replay(const op::Program& program, const trace::Trace& trace, std::span<const int32_t> tokens,
         int threads);

  // The own error of a recorded checkpoint at the given positions, where it was recorded. Inputs
  // that were not recorded are computed from those before them, with the rounding that this adds.
  // Nothing where the trace lacks positions that are needed.
  std::optional<std::vector<OwnError>> judge(op::ValueId id, std::span<const int64_t> positions);

  const Arithmetic& arithmetic() const { return arithmetic_; }

 private:
  // A value at some positions and the variance of its rounding error (zero where recorded with all
  // digits).
  struct Estimate {
    Matrix value;
    Matrix variance;  // empty: zero
  };
  using Positions = std::span<const int64_t>;

  bool recorded(op::ValueId id, Positions positions) const;
  std::optional<Matrix> read(op::ValueId id, Positions positions) const;
  bool stored_coarsely() const { return arithmetic_.stored > arithmetic_.activations; }
  Estimate with_storage_error(Matrix rows) const;
  std::optional<Estimate> obtain(op::ValueId id, Positions positions);
  std::optional<Estimate> derive(op::ValueId id, Positions positions);
  std::optional<Estimate> derive_attention(const op::Op& op, op::ValueId id, Positions positions);
  void propagate(const std::function<Matrix(std::span<const Matrix* const>)>& evaluate,
                 const std::vector<Estimate>& inputs, Estimate& out);

  const op::Program& program_;
  const trace::Trace& trace_;
  std::vector<int32_t> tokens_;
  std::vector<const op::Op*> producer_;  // by value
  Arithmetic arithmetic_;
  int threads_;
};

}  // namespace lockstep::parity
