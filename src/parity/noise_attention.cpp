// Attention is judged by its parts: scores, probabilities, mix.
#include <algorithm>
#include <cmath>

#include "parity/noise.h"
#include "parity/rounding.h"

namespace lockstep::parity {

void score_variance(const op::Attention& attention, const double* q_head, const Matrix& k,
                    int64_t kv_head, std::span<const double> scores, const Arithmetic& a,
                    std::span<double> variance) {
  const auto n = static_cast<double>(attention.head_size);
  const double operands = std::max(a.kv, a.operands());
  for (size_t p = 0; p < scores.size(); ++p) {
    if (!std::isfinite(scores[p])) {
      variance[p] = 0;
      continue;
    }
    const double* key = k.row(static_cast<int64_t>(p)) + kv_head * attention.head_size;
    double squares = 0;
    double sum = 0;
    for (int64_t i = 0; i < attention.head_size; ++i) {
      const double term = q_head[i] * key[i] * attention.scale;
      squares += square(term);
      sum += term;
    }
    // Products, the scale (before or after the sum), and operands.
    variance[p] = summed(n, sum, squares, a.compute) + 2 * square(a.compute) / 3 * squares +
                  (operands > a.compute ? 2 * square(operands) / 3 * squares : 0) +
                  rounded_once(sum, std::max(a.compute, kSingle)) + rounded_once(sum, a.compute) +
                  handed_on(scores[p], a);
  }
}

void softmax_variance(std::span<const double> scores, std::span<const double> probs,
                      std::span<const double> score_variance, const Arithmetic& a,
                      std::span<double> variance) {
  const double largest = *std::ranges::max_element(scores);
  double shared = 0;  // of the sum, relative
  double squares = 0;
  double seen = 0;
  for (size_t p = 0; p < scores.size(); ++p) {
    if (probs[p] == 0) continue;
    shared += square(probs[p]) * score_variance[p];
    squares += square(probs[p]);
    ++seen;
  }
  shared += summed(seen, 1, squares, a.compute);
  for (size_t p = 0; p < scores.size(); ++p) {
    if (probs[p] == 0) {
      variance[p] = 0;
      continue;
    }
    // A difference of scores is rounded, and so is the exponential's argument.
    const double of_exponent =
        square(a.compute) * (4 + square(scores[p] - largest)) + of_operand(scores[p], a);
    variance[p] =
        square(probs[p]) * (score_variance[p] + shared + of_exponent) + handed_on(probs[p], a);
  }
}

void mix_variance(const op::Attention& attention, std::span<const double> probs,
                  std::span<const double> prob_variance, const Matrix& v, int64_t kv_head,
                  const double* mix, const Arithmetic& a, double* variance) {
  const double operands = std::max(a.kv, a.operands());
  const bool coarse = operands > a.compute;
  for (int64_t d = 0; d < attention.value_size; ++d) {
    double squares = 0;
    double of_probs = 0;
    double of_tiny = 0;  // probabilities that are too small for the type of operands
    double seen = 0;
    for (size_t p = 0; p < probs.size(); ++p) {
      if (probs[p] == 0) continue;
      const double value = v.row(static_cast<int64_t>(p))[kv_head * attention.value_size + d];
      squares += square(probs[p] * value);
      // What all probabilities have in common (their sum is off) moves the mix as a whole.
      of_probs += prob_variance[p] * square(value - mix[d]) + prob_variance[p] * square(mix[d]);
      if (coarse) of_tiny += square(value * tiny(operands)) / 3;
      ++seen;
    }
    variance[d] = of_probs + of_tiny + summed(seen, mix[d], squares, a.compute) +
                  (square(a.compute) + (coarse ? 2 * square(operands) : 0)) / 3 * squares +
                  handed_on(mix[d], a);
  }
}

}  // namespace lockstep::parity
