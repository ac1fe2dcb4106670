// Attention is judged by its parts: scores, probabilities, mix.
#include <algorithm>
#include <cmath>

#include "parity/noise.h"
#include "parity/rounding.h"
#include "parity/summation.h"
#include "parity/term_statistics.h"

namespace lockstep::parity {
namespace {

// The type of both factors, where that is coarser than the arithmetic: an engine whose cache is in
// half precision may read queries in it too.
double unit_of_factors(const Arithmetic& a) {
  const double unit_of_type = std::max(a.kv, a.operands());
  return unit_of_type > a.compute ? unit_of_type : 0;
}

// Single precision whose last digits tensor cores do not read: both factors are too small by about
// a unit, whatever the sum is.
double of_cut_factors(double sum, double squares, const Arithmetic& a) {
  return with_known(2 * square(a.factors) / 3 * squares, 2 * a.factors * sum);
}

}  // namespace

// Engines that round both activations and cache to 8-bit floating point multiply them as they are.
Operand query_operand(const Arithmetic& a) {
  return a.products.is_small_float() && a.cache.is_small_float() ? a.products : Operand();
}

void score_variance(const op::Attention& attention, const Factors& q, int64_t row, int64_t head,
                    const Factors& k, int64_t kv_head, std::span<const double> scores,
                    const Arithmetic& a, std::span<double> variance) {
  const auto n = static_cast<double>(attention.head_size);
  const double unit_of_type = unit_of_factors(a);
  const int64_t first = head * attention.head_size;
  const int64_t kv_first = kv_head * attention.head_size;
  const double* query = q.numbers.row(row) + first;
  std::vector<double> terms(static_cast<size_t>(attention.head_size));
  const double query_squares = sum_of_squares({query, terms.size()});
  for (size_t p = 0; p < scores.size(); ++p) {
    if (!std::isfinite(scores[p])) {
      variance[p] = 0;
      continue;
    }
    const auto position = static_cast<int64_t>(p);
    const double* key = k.numbers.row(position) + kv_first;
    for (size_t i = 0; i < terms.size(); ++i) terms[i] = query[i] * key[i] * attention.scale;
    const double key_squares = sum_of_squares({key, terms.size()});
    const double sum = sum_of(terms);
    const auto [of_sum, squares] = noise_of_sum(terms, a.compute);
    // Products, the scale (before or after the sum), and factors.
    double v = of_sum + 2 * square(a.compute) / 3 * squares +
               rounded_once(sum, std::max(a.compute, kSingle)) + rounded_once(sum, a.compute) +
               square(attention.scale) * of_vanishing(n, query_squares, key_squares, a.compute) +
               of_cut_factors(sum, squares, a) + handed_on(scores[p], a);
    if (unit_of_type > 0)
      v += 2 * square(unit_of_type) / 3 * squares +
           square(attention.scale * tiny(unit_of_type)) * (query_squares + key_squares) / 3;
    const double scale = square(attention.scale);
    if (k.rounded != nullptr)
      v += scale * of_rounded(*k.rounded, position, kv_first, {query, terms.size()});
    if (q.rounded != nullptr) v += scale * of_rounded(*q.rounded, row, first, {key, terms.size()});
    variance[p] = v;
  }
}

void softmax_variance(std::span<const double> scores, std::span<const double> probs,
                      std::span<const double> score_variance, const Arithmetic& a,
                      std::span<double> variance) {
  const double largest = *std::ranges::max_element(scores);
  double shared = 0;  // of the sum, relative
  double seen = 0;
  double total = 0;
  std::vector<double> powers;
  for (size_t p = 0; p < scores.size(); ++p) {
    if (probs[p] == 0) continue;
    shared += square(probs[p]) * score_variance[p];
    powers.push_back(std::exp(scores[p] - largest));
    total += powers.back();
    ++seen;
  }
  // Whatever is lost of the sum, its largest term, which is 1, stays.
  const double lost = std::sqrt(noise_of_sum(powers, a.compute, 0, true).variance +
                                of_vanishing(seen, 0, 0, a.compute));
  shared += square(lost / std::max(total - lost, 1.0));
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
                  std::span<const double> prob_variance, const Factors& v, int64_t kv_head,
                  const double* mix, const Arithmetic& a, double* variance) {
  const double unit_of_type = unit_of_factors(a);
  std::vector<size_t> seen;
  double prob_squares = 0;
  for (size_t p = 0; p < probs.size(); ++p) {
    if (probs[p] == 0) continue;
    seen.push_back(p);
    prob_squares += square(probs[p]);
  }
  const auto n = static_cast<double>(seen.size());
  std::vector<double> terms(seen.size());
  std::vector<double> values(seen.size());
  std::vector<double> shares(seen.size());
  std::vector<double> variances(seen.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    shares[i] = probs[seen[i]];
    variances[i] = prob_variance[seen[i]];
  }
  // Probabilities as a factor are of the type of values, or of the activations' where 8-bit
  // numbers are multiplied as they are; there the largest one is 1 before the sum is divided out.
  Rounded of_factors(1, std::ssize(seen));
  Operand as_factor = query_operand(a);
  as_factor.scale = as_factor.rounds() ? Scale::kRow : Scale::kNone;
  as_factor.largest = 1;
  for (const Operand& operand :
       {unit_of_type > 0 ? plain_operand(unit_of_type) : Operand(), as_factor})
    if (operand.rounds()) of_factors.add(operand, shares, 0, 0);
  for (int64_t d = 0; d < attention.value_size; ++d) {
    const int64_t column = kv_head * attention.value_size + d;
    for (size_t i = 0; i < seen.size(); ++i) {
      const auto p = static_cast<int64_t>(seen[i]);
      values[i] = v.columns != nullptr ? v.columns->row(column)[p] : v.numbers.row(p)[column];
    }
    const MixSums sums = mix_terms(shares, values.data(), variances.data(), mix[d], terms.data());
    const double value_squares = sums.value_squares;
    // What all probabilities have in common (their sum is off) moves the mix as a whole.
    const double of_probs = sums.of_weights;
    const auto [of_sum, squares] = noise_of_sum(terms, a.compute);
    double out = of_probs + of_sum + square(a.compute) / 3 * squares +
                 of_vanishing(n, prob_squares, value_squares, a.compute) +
                 of_cut_factors(mix[d], squares, a) + handed_on(mix[d], a);
    if (unit_of_type > 0 || as_factor.rounds()) out += of_rounded(of_factors, 0, 0, values);
    if (unit_of_type > 0)
      out += (square(unit_of_type) * squares + square(tiny(unit_of_type)) * prob_squares) / 3;
    if (v.rounded != nullptr) {
      double chance = 0;
      double known = 0;
      for (const size_t p : seen) {
        chance += square(probs[p]) * v.rounded->variances.row(static_cast<int64_t>(p))[column];
        known += probs[p] * v.rounded->errors.row(static_cast<int64_t>(p))[column];
      }
      out += with_known(chance, known);
    }
    variance[d] = out;
  }
}

}  // namespace lockstep::parity
