// What each op computes, in double precision: the definition that all else is judged by. Weights
// are decoded exactly; sums run in one fixed order, whatever the number of threads (sums.h).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "exec/executor.h"
#include "exec/reference/matrix.h"
#include "op/program.h"

namespace lockstep::exec::reference {

// Which token each row belongs to, and its position in the sequence.
struct Place {
  std::span<const TokenId> tokens;
  std::span<const int64_t> positions;
};

// Evaluates one op from any inputs, in the order of Op::inputs. For Attention, k and v hold every
// position from 0 to the last one of the rows. The output has `width` columns. With `scores` given,
// Attention also fills scores and probs ([heads * tokens, positions] each).
struct Scores {
  Matrix scores;
  Matrix probs;
};
Matrix evaluate(const op::What& what, std::span<const Matrix* const> inputs, int64_t width,
                const Place& place, int threads, Scores* scores = nullptr);

// The keys that a position sees: from the first up to, but without, the end.
struct Seen {
  int64_t first = 0;
  int64_t end = 0;
};
Seen seen_by(const op::Attention& attention, int64_t position);

// By head; kNoSink where there is none.
inline constexpr double kNoSink = -std::numeric_limits<double>::infinity();
std::vector<double> sinks_of(const op::Attention& attention);

// The parts of Attention, for one head of one row. `row` and `probs` have k.rows or v.rows entries;
// what the row's position does not see is minus infinity in scores and 0 in probs.
void score_row(const op::Attention& attention, const double* q_head, const Matrix& k,
               int64_t kv_head, int64_t position, std::span<double> row);
void softmax(std::span<double> row, double sink = kNoSink);
void mix_row(const op::Attention& attention, std::span<const double> probs, const Matrix& v,
             int64_t kv_head, double* out);

}  // namespace lockstep::exec::reference
