// What rounding does to an op: the spread of the error that an honest engine's result has, given
// its own inputs. docs/numerics.md derives every formula.
#pragma once

#include <span>

#include "exec/f64/products.h"
#include "exec/reference/ops.h"
#include "op/op.h"
#include "parity/arithmetic.h"

namespace lockstep::parity {

using exec::f64::Products;
using exec::reference::Matrix;
using exec::reference::Place;

// Variance of the rounding error of each element of `out` = op(inputs), in the worst honest order
// of summation. Attention is not an op here but its three parts (below).
Matrix rounding_variance(const op::What& what, std::span<const Matrix* const> inputs,
                         const Matrix& out, const Place& place, const Arithmetic& arithmetic,
                         int threads);

// Variance that elements of `out` have from errors of the inputs with the given variances (an
// empty matrix: none), as far as each input element acts by itself. Not for Attention.
Matrix carried_variance(const op::What& what, std::span<const Matrix* const> inputs,
                        std::span<const Matrix* const> variances, const Matrix& out,
                        const Place& place, int threads,
                        Products& products = exec::f64::cpu_products());

double largest_of_weight(const op::Weight& weight, int threads);

// The factors of attention's products, and what they are rounded to beyond plain types.
struct Factors {
  const Matrix& numbers;
  const Rounded* rounded;

  Factors(const Matrix& matrix, const Rounded* as = nullptr) : numbers(matrix), rounded(as) {}
};
Operand query_operand(const Arithmetic& arithmetic);

// Keys as scores read them: by column, filled up with zeros so that eight can be read everywhere.
Matrix key_columns(const Matrix& keys);

// One head of one row of attention's parts, with the variance of the rounding error (the same as
// rounding_variance), or without where none is given.
//
// Scores of the keys from `first` on, up to `end`, whatever the mask says.
void score_keys(const op::Attention& attention, const Factors& q, int64_t row, int64_t head,
                const Factors& k, const Matrix& by_column, int64_t kv_head, int64_t first,
                int64_t end, const Arithmetic& arithmetic, std::span<double> scores,
                std::span<double> variance);
void softmax_variance(std::span<const double> scores, std::span<const double> probs,
                      std::span<const double> score_variance, double sink,
                      const Arithmetic& arithmetic, std::span<double> variance);
void mix_values(const op::Attention& attention, std::span<const double> probs,
                std::span<const double> prob_variance, const Factors& v, int64_t kv_head,
                const Arithmetic& arithmetic, double* mix, double* variance);

}  // namespace lockstep::parity
