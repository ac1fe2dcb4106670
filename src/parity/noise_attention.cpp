// Attention is judged by its parts: scores, probabilities, mix.
#include <algorithm>
#include <cmath>
#include <utility>

#include "parity/lane_sums.h"
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

// What rounding does to eight sums. Where the terms of one have to be looked at, those of all are
// laid out, since they lie side by side.
class LaneVariances {
 public:
  LaneVariances(const LaneTerms& terms, const LaneNoise& of, double unit_of_type,
                std::vector<double>& room)
      : terms_(terms), of_(of), unit_(unit_of_type), room_(room) {}

  double operator()(size_t lane) {
    if (of_.settled[lane] != 0 || !std::isfinite(of_.variance[lane])) return of_.variance[lane];
    if (!std::exchange(laid_out_, true)) lay_out();
    return noise_of_sum(std::span(room_).subspan(lane * terms_.count, terms_.count), unit_)
        .variance;
  }

 private:
  void lay_out() {
    room_.resize(terms_.lanes * terms_.count);
    for (size_t i = 0; i < terms_.count; ++i) {
      const double* const numbers = terms_.at(i);
      for (size_t lane = 0; lane < terms_.lanes; ++lane)
        room_[lane * terms_.count + i] = terms_.factors[i] * numbers[lane];
    }
  }

  const LaneTerms& terms_;
  const LaneNoise& of_;
  const double unit_;
  std::vector<double>& room_;
  bool laid_out_ = false;
};

}  // namespace

// Engines that round both activations and cache to 8-bit floating point multiply them as they are.
Operand query_operand(const Arithmetic& a) {
  return a.products.is_small_float() && a.cache.is_small_float() ? a.products : Operand();
}

Matrix key_columns(const Matrix& keys) {
  constexpr auto kEight = static_cast<int64_t>(kTermLanes);
  Matrix out(keys.columns, (keys.rows + kEight - 1) / kEight * kEight);
  for (int64_t r = 0; r < keys.rows; ++r)
    for (int64_t c = 0; c < keys.columns; ++c) out.row(c)[r] = keys.row(r)[c];
  return out;
}

void score_keys(const op::Attention& attention, const Factors& q, int64_t row, int64_t head,
                const Factors& k, const Matrix& by_column, int64_t kv_head, int64_t first,
                int64_t end, const Arithmetic& a, std::span<double> scores,
                std::span<double> variance) {
  const auto size = static_cast<size_t>(attention.head_size);
  const auto n = static_cast<double>(attention.head_size);
  const double unit_of_type = unit_of_factors(a);
  const int64_t query_first = head * attention.head_size;
  const int64_t key_first = kv_head * attention.head_size;
  const double* query = q.numbers.row(row) + query_first;
  const double query_squares = sum_of_squares({query, size});
  std::vector<double> scaled(size);
  for (size_t i = 0; i < size; ++i) scaled[i] = query[i] * attention.scale;
  const double scale = square(attention.scale);
  std::vector<double> terms;
  const auto variance_of = [&](int64_t p, size_t lane, const LaneNoise& of, double of_sum,
                               double sum, double score) {
    const double key_squares = of.number_squares[lane];
    const double squares = of.squares[lane];
    // Products, the scale (before or after the sum), and factors.
    double v = of_sum + 2 * square(a.compute) / 3 * squares +
               rounded_once(sum, std::max(a.compute, kSingle)) + rounded_once(sum, a.compute) +
               scale * of_vanishing(n, query_squares, key_squares, a.compute) +
               of_cut_factors(sum, squares, a) + handed_on(score, a);
    if (unit_of_type > 0)
      v += 2 * square(unit_of_type) / 3 * squares +
           square(attention.scale * tiny(unit_of_type)) * (query_squares + key_squares) / 3;
    if (k.rounded != nullptr) v += scale * of_rounded(*k.rounded, p, key_first, {query, size});
    if (q.rounded != nullptr)
      v += scale * of_rounded(*q.rounded, row, query_first, {k.numbers.row(p) + key_first, size});
    return v;
  };
  constexpr auto kEight = static_cast<int64_t>(kTermLanes);
  for (int64_t group = first / kEight * kEight; group < end; group += kEight) {
    LaneTerms lanes{.factors = query,
                    .numbers = by_column.row(key_first) + group,
                    .stride = by_column.columns,
                    .count = size};
    double sums[kTermLanes];
    lane_dots(lanes, sums);
    for (double& sum : sums) sum *= attention.scale;
    lanes.factors = scaled.data();
    LaneNoise of;
    if (!variance.empty()) lane_noise(lanes, sums, a.compute, nullptr, of);
    LaneVariances of_sums(lanes, of, a.compute, terms);
    for (int64_t p = std::max(first, group); p < std::min(end, group + kEight); ++p) {
      const auto lane = static_cast<size_t>(p - group);
      double score = sums[lane];
      if (attention.soft_cap > 0)
        score = attention.soft_cap * std::tanh(score / attention.soft_cap);
      scores[static_cast<size_t>(p)] = score;
      if (!variance.empty())
        variance[static_cast<size_t>(p)] =
            std::isfinite(score) ? variance_of(p, lane, of, of_sums(lane), sums[lane], score) : 0;
    }
  }
}

void softmax_variance(std::span<const double> scores, std::span<const double> probs,
                      std::span<const double> score_variance, double sink, const Arithmetic& a,
                      std::span<double> variance) {
  const bool has_sink = sink != exec::reference::kNoSink;
  const double largest = std::max(*std::ranges::max_element(scores), sink);
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
  if (has_sink) {
    powers.push_back(std::exp(sink - largest));
    total += powers.back();
    ++seen;
    // It is a weight, which may be declared to be rounded, and an operand.
    const double rounded =
        a.weights && a.weights->is_plain() ? rounded_once(sink, a.weights->unit) : 0;
    shared += square(powers.back() / total) *
              (rounded + of_operand(sink, a) + of_operand(sink - largest, a));
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
    const double of_exponent = square(a.compute) * (4 + square(scores[p] - largest)) +
                               of_operand(scores[p], a) +
                               (has_sink ? of_operand(scores[p] - largest, a) : 0);
    variance[p] =
        square(probs[p]) * (score_variance[p] + shared + of_exponent) + handed_on(probs[p], a);
  }
}

void mix_values(const op::Attention& attention, std::span<const double> probs,
                std::span<const double> prob_variance, const Factors& v, int64_t kv_head,
                const Arithmetic& arithmetic, double* mix, double* variance) {
  const double unit_of_type = unit_of_factors(arithmetic);
  Arithmetic a = arithmetic;
  if (a.kv == unit(DType::kF16)) a.compute = a.half_sums;  // values and probabilities are halves
  std::vector<int64_t> seen;
  std::vector<double> shares;
  std::vector<double> share_squares;
  std::vector<double> variances;
  double prob_squares = 0;
  double variance_of_all = 0;
  for (size_t p = 0; p < probs.size(); ++p) {
    if (probs[p] == 0) continue;  // out of sight, whatever v holds there
    seen.push_back(static_cast<int64_t>(p));
    shares.push_back(probs[p]);
    if (variance == nullptr) continue;
    share_squares.push_back(square(probs[p]));
    prob_squares += share_squares.back();
    variances.push_back(prob_variance[p]);
    variance_of_all += prob_variance[p];
  }
  const auto n = static_cast<double>(seen.size());
  // Probabilities as a factor are of the type of values, or of the activations' where 8-bit
  // numbers are multiplied as they are; there the largest one is 1 before the sum is divided out.
  Rounded of_factors(1, std::ssize(seen));
  Operand as_factor = query_operand(a);
  as_factor.scale = as_factor.rounds() ? Scale::kRow : Scale::kNone;
  as_factor.largest = 1;
  const Operand plain = unit_of_type > 0 ? plain_operand(unit_of_type) : Operand();
  if (variance != nullptr)
    for (const Operand& operand : {plain, as_factor})
      if (operand.rounds()) of_factors.add(operand, shares, 0, 0);
  std::vector<double> own;
  constexpr auto kEight = static_cast<int64_t>(kTermLanes);
  for (int64_t d = 0; d < attention.value_size; d += kEight) {
    const int64_t column = kv_head * attention.value_size + d;
    const auto lanes = static_cast<size_t>(std::min(kEight, attention.value_size - d));
    const auto terms_of = [&](const std::vector<double>& factors, const Matrix& numbers) {
      return LaneTerms{.factors = factors.data(),
                       .numbers = numbers.row(0) + column,
                       .stride = numbers.columns,
                       .places = seen.data(),
                       .count = seen.size(),
                       .lanes = lanes};
    };
    const LaneTerms terms = terms_of(shares, v.numbers);
    double sums[kTermLanes];
    lane_mixes(terms, sums);
    std::copy_n(sums, lanes, mix + d);
    if (variance == nullptr) continue;
    LaneNoise of;
    lane_noise(terms, sums, a.compute, variances.data(), of);
    double chance[kTermLanes] = {};
    double known[kTermLanes] = {};
    double value_chance[kTermLanes] = {};
    double value_known[kTermLanes] = {};
    const bool rounds_shares = plain.rounds() || as_factor.rounds();
    if (as_factor.rounds())
      lane_sums(terms_of(of_factors.variances.values, v.numbers), chance, true);
    else if (plain.rounds())  // by the size of each factor: sums of squares tell
      for (size_t lane = 0; lane < lanes; ++lane)
        chance[lane] = (square(plain.unit) * of.squares[lane] +
                        square(plain.tiny()) * of.number_squares[lane]) /
                       3;
    if (rounds_shares) lane_sums(terms_of(of_factors.errors.values, v.numbers), known);
    if (v.rounded != nullptr) {
      lane_sums(terms_of(share_squares, v.rounded->variances), value_chance);
      lane_sums(terms_of(shares, v.rounded->errors), value_known);
    }
    LaneVariances of_sums(terms, of, a.compute, own);
    for (size_t lane = 0; lane < lanes; ++lane) {
      const double sum = sums[lane];
      const double squares = of.squares[lane];
      const double of_sum = of_sums(lane);
      // What all probabilities have in common (their sum is off) moves the mix as a whole.
      const double of_probs = of.spread[lane] + variance_of_all * square(sum);
      double out = of_probs + of_sum + square(a.compute) / 3 * squares +
                   of_vanishing(n, prob_squares, of.number_squares[lane], a.compute) +
                   of_cut_factors(sum, squares, a) + handed_on(sum, a);
      if (rounds_shares) out += with_known(chance[lane], known[lane]);
      if (unit_of_type > 0)
        out += (square(unit_of_type) * squares + square(tiny(unit_of_type)) * prob_squares) / 3;
      if (v.rounded != nullptr) out += with_known(value_chance[lane], value_known[lane]);
      variance[static_cast<size_t>(d) + lane] = out;
    }
  }
}

}  // namespace lockstep::parity
