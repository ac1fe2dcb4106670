// What rounding does to an op: the spread of the error that an honest engine's result has, given
// its own inputs. docs/numerics.md derives every formula.
#pragma once

#include <span>

#include "exec/reference/ops.h"
#include "op/op.h"
#include "parity/arithmetic.h"

namespace lockstep::parity {

using exec::reference::Matrix;
using exec::reference::Place;

// Variance of the rounding error of each element of `out` = op(inputs), in the worst honest order
// of summation. Attention is not an op here but its three parts (below).
Matrix rounding_variance(const op::What& what, std::span<const Matrix* const> inputs,
                         const Matrix& out, const Place& place, const Arithmetic& arithmetic,
                         int threads);

// The same for one head of one row of attention's parts.
void score_variance(const op::Attention& attention, const double* q_head, const Matrix& k,
                    int64_t kv_head, std::span<const double> scores, const Arithmetic& arithmetic,
                    std::span<double> variance);
void softmax_variance(std::span<const double> scores, std::span<const double> probs,
                      std::span<const double> score_variance, const Arithmetic& arithmetic,
                      std::span<double> variance);
void mix_variance(const op::Attention& attention, std::span<const double> probs,
                  std::span<const double> prob_variance, const Matrix& v, int64_t kv_head,
                  const double* mix, const Arithmetic& arithmetic, double* variance);

}  // namespace lockstep::parity
