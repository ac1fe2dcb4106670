#include "doctor/find_decoding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/parallel.h"
#include "doctor/some_blocks.h"
#include "parity/noise_linear.h"
#include "parity/own_error.h"
#include "quant/decode.h"

namespace lockstep::doctor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Held against first: few outputs at few positions.
constexpr int64_t kFewOutputs = 24;
constexpr int64_t kFewPositions = 4;
// And at last: all outputs at so many positions.
constexpr int64_t kMostPositions = 32;
constexpr size_t kMostHeldToAll = 6;  // decodings
constexpr size_t kMostTold = 8;
constexpr int64_t kRowsAtATime = 512;  // of a weight, decoded
// Ratios up to this one may be less by an exact bound, or more on more numbers.
constexpr double kOpen = 30;

std::vector<int64_t> evenly(const std::vector<int64_t>& from, int64_t most) {
  std::vector<int64_t> out;
  const int64_t count = std::min(most, std::ssize(from));
  for (int64_t i = 0; i < count; ++i)
    out.push_back(from[static_cast<size_t>(i * std::ssize(from) / count)]);
  return out;
}

std::vector<int64_t> all_to(int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Matrix chosen_rows(const Matrix& from, const std::vector<int64_t>& rows) {
  Matrix out(std::ssize(rows), from.columns);
  for (int64_t r = 0; r < out.rows; ++r)
    std::copy_n(from.row(rows[static_cast<size_t>(r)]), from.columns, out.row(r));
  return out;
}

// Products of some rows of a weight, and what rounding does to them.
struct Products {
  Matrix value;
  Matrix variance;
  std::vector<char> wild;  // by output: its weights are as large as only garbage is
};

// Honest variances, or what they are at least, which costs less.
enum class Bound { kExact, kAtLeast };
constexpr double kWild = 1e15;
constexpr double kNearEnough = 1e-4;  // of the sum of such terms' sizes, where both are finite

// What fits where: the judge's bound, over the given outputs of one position.
struct Held {
  double ratio = 0;
  int64_t compared = 0;  // numbers that are finite on both sides
};

class DecodingSearch {
 public:
  DecodingSearch(const Projection& projection, int threads)
      : linear_(projection.linear),
        weight_(linear_.weight),
        arithmetic_(for_copy(projection.arithmetic, weight_)),
        threads_(threads),
        outputs_(std::min(weight_.rows, projection.y.columns)) {
    std::vector<int64_t> usable;
    for (int64_t r = 0; r < projection.x.rows; ++r)
      if (std::all_of(projection.x.row(r), projection.x.row(r) + projection.x.columns,
                      [](double x) { return std::isfinite(x); }))
        usable.push_back(r);
    const std::vector<int64_t> rows = evenly(usable, kMostPositions);
    x_ = chosen_rows(projection.x, rows);
    y_ = chosen_rows(projection.y, rows);
    if (linear_.bias) {
      bias_.resize(static_cast<size_t>(linear_.bias->columns));
      quant::decode(linear_.bias->format->format(), linear_.bias->data.data(),
                    linear_.bias->columns, bias_.data());
    }
  }

  std::vector<DecodingFit> run() {
    if (!parity::is_quantized(weight_) || x_.rows == 0 || outputs_ == 0) return {};
    hold_to_truth();
    if (before_ <= 1) return {};
    std::vector<DecodingFit> found = among(singles());
    if (!explained(found)) append(found, some_blocks());
    if (!explained(found)) append(found, among(pairs()));
    std::ranges::stable_sort(found, [](const DecodingFit& a, const DecodingFit& b) {
      if (a.explains() != b.explains()) return a.explains();
      return a.ratio_after < b.ratio_after;
    });
    while (found.size() > kMostTold && !found.back().explains()) found.pop_back();
    return found;
  }

 private:
  static bool explained(const std::vector<DecodingFit>& fits) {
    return std::ranges::any_of(fits, &DecodingFit::explains);
  }

  static void append(std::vector<DecodingFit>& to, std::vector<DecodingFit> from) {
    std::ranges::move(from, std::back_inserter(to));
  }

  // Of `outputs` at all rows of x.
  Products multiply(const DecodingFit* fit, const std::vector<int64_t>& outputs, const Matrix& x,
                    Bound bound) const {
    Products out{Matrix(x.rows, std::ssize(outputs)), Matrix(x.rows, std::ssize(outputs)),
                 std::vector<char>(outputs.size())};
    for (int64_t first = 0; first < std::ssize(outputs); first += kRowsAtATime) {
      const int64_t count = std::min(kRowsAtATime, std::ssize(outputs) - first);
      std::vector<float> numbers(static_cast<size_t>(count * weight_.columns));
      std::vector<float> bias(static_cast<size_t>(count));
      parallel_rows(count, weight_.columns, threads_, [&](int64_t i) {
        const int64_t row = outputs[static_cast<size_t>(first + i)];
        float* const decoded = numbers.data() + i * weight_.columns;
        decode_fit_row(weight_, row, fit, decoded);
        out.wild[static_cast<size_t>(first + i)] =
            std::all_of(decoded, decoded + weight_.columns,
                        [](float w) { return std::fabs(static_cast<double>(w)) < kWild; })
                ? 0
                : 1;
        if (!bias_.empty()) bias[static_cast<size_t>(i)] = bias_[static_cast<size_t>(row)];
      });
      const quant::FormatInfo& single = quant::info(quant::Format::kF32);
      op::Linear part{.weight = {.name = weight_.name,
                                 .format = &single,
                                 .rows = count,
                                 .columns = weight_.columns,
                                 .data = std::as_bytes(std::span(numbers))},
                      .bias = {}};
      if (!bias_.empty())
        part.bias = op::Weight{.name = "bias",
                               .format = &single,
                               .rows = 1,
                               .columns = count,
                               .data = std::as_bytes(std::span(bias))};
      const parity::LinearNoise noise(part, x, arithmetic_, threads_);
      auto evaluated = noise.evaluate();
      if (bound == Bound::kExact) evaluated.at_least = noise.all(evaluated.value);
      for (int64_t r = 0; r < x.rows; ++r) {
        std::copy_n(evaluated.value.row(r), count, out.value.row(r) + first);
        std::copy_n(evaluated.at_least.row(r), count, out.variance.row(r) + first);
      }
      for (int64_t i = 0; i < count; ++i)
        if (out.wild[static_cast<size_t>(first + i)] != 0)
          add_wild(numbers.data() + i * weight_.columns, x, first + i, out);
    }
    return out;
  }

  // Squares of such numbers leave single precision, and the sums may. What is kept of them is the
  // value and the size of its terms.
  static void add_wild(const float* weights, const Matrix& x, int64_t output, Products& out) {
    for (int64_t r = 0; r < x.rows; ++r) {
      double sum = 0;
      double size = 0;
      for (int64_t i = 0; i < x.columns; ++i) {
        const double term = static_cast<double>(weights[i]) * x.row(r)[i];
        sum += term;
        size += std::fabs(term);
      }
      out.value.row(r)[output] = sum;
      out.variance.row(r)[output] = size;
    }
  }

  // Against what was recorded. Sums that leave single precision on their way are infinite or NaN
  // there, and all of these are alike.
  static Held hold(std::span<const double> recorded, const Products& products, int64_t row) {
    std::vector<double> actual, truth, variance;
    Held out;
    for (size_t i = 0; i < recorded.size(); ++i) {
      const double value = products.value.row(row)[i];
      const double spread = products.variance.row(row)[i];
      const bool wild = products.wild[i] != 0;
      const bool finite =
          std::fabs(value) <= static_cast<double>(std::numeric_limits<float>::max());
      if (finite != std::isfinite(recorded[i]) && (!finite || !wild)) out.ratio = kInfinity;
      if (!finite || !std::isfinite(recorded[i])) continue;
      if (wild) {
        ++out.compared;
        if (std::fabs(recorded[i] - value) > kNearEnough * spread) out.ratio = kInfinity;
        continue;
      }
      actual.push_back(recorded[i]);
      truth.push_back(value);
      variance.push_back(spread);
    }
    out.compared += std::ssize(actual);
    const double ratio = parity::compare_row(actual, truth, variance, false).ratio();
    out.ratio = std::max(out.ratio, std::isnan(ratio) ? kInfinity : ratio);
    return out;
  }

  std::vector<double> recorded(int64_t row, const std::vector<int64_t>& outputs) const {
    std::vector<double> out;
    for (const int64_t output : outputs) out.push_back(y_.row(row)[output]);
    return out;
  }

  // Which outputs the true decoding does not explain.
  void hold_to_truth() {
    const std::vector<int64_t> all = all_to(outputs_);
    for (const Bound bound : {Bound::kAtLeast, Bound::kExact}) {
      truth_ = multiply(nullptr, all, x_, bound);
      before_ = 0;
      for (int64_t r = 0; r < x_.rows; ++r)
        before_ = std::max(before_, hold(recorded(r, all), truth_, r).ratio);
      if (before_ <= 1 || before_ > kOpen) break;
    }
    std::vector<bool> wrong(static_cast<size_t>(outputs_));
    for (int64_t r = 0; r < x_.rows; ++r) {
      const std::span<const double> actual(y_.row(r), static_cast<size_t>(outputs_));
      for (const int64_t i :
           parity::elements_beyond(parity::kRowLimit, actual, {truth_.value.row(r), actual.size()},
                                   {truth_.variance.row(r), actual.size()}, false))
        wrong[static_cast<size_t>(i)] = true;
    }
    for (int64_t i = 0; i < outputs_; ++i)
      if (wrong[static_cast<size_t>(i)]) wrong_.push_back(i);
    if (wrong_.empty()) wrong_ = all;
    // Numbers say more than infinities do.
    std::vector<int64_t> finite;
    for (const int64_t output : wrong_)
      if (std::ranges::all_of(all_to(y_.rows),
                              [&](int64_t r) { return std::isfinite(y_.row(r)[output]); }))
        finite.push_back(output);
    few_ = evenly(finite.empty() ? wrong_ : finite, kFewOutputs);
    few_rows_ = evenly(all_to(x_.rows), kFewPositions);
    few_x_ = chosen_rows(x_, few_rows_);
  }

  std::vector<DecodingFit> singles() const {
    std::vector<DecodingFit> out;
    for (const Decoding& decoding : decodings_of(weight_.format->format()))
      if (applies(decoding, weight_)) out.push_back({.decoding = &decoding});
    return out;
  }

  // Two mistakes of different kinds: thousands, most of which one output rules out.
  std::vector<DecodingFit> pairs() const {
    std::vector<DecodingFit> out;
    const auto all = decodings_of(weight_.format->format());
    for (const Decoding& first : all)
      for (const Decoding& second : all)
        if (&first < &second && first.how != second.how && first.alter && second.alter) {
          DecodingFit fit{.decoding = &first, .also = &second};
          if (!far_off(fit)) out.push_back(std::move(fit));
        }
    return out;
  }

  // By one output: whether it is as far from what was recorded as chance puts it.
  bool far_off(const DecodingFit& fit) const {
    constexpr double kChance = 0.2;  // no rounding does that
    std::vector<float> weights(static_cast<size_t>(weight_.columns));
    decode_fit_row(weight_, few_[0], &fit, weights.data());
    const double bias =
        bias_.empty() ? 0 : static_cast<double>(bias_[static_cast<size_t>(few_[0])]);
    for (int64_t r = 0; r < few_x_.rows; ++r) {
      double error = bias - y_.row(few_rows_[static_cast<size_t>(r)])[few_[0]];
      double squares = bias * bias;
      for (int64_t i = 0; i < weight_.columns; ++i) {
        const double term = static_cast<double>(weights[static_cast<size_t>(i)]) * few_x_.row(r)[i];
        error += term;
        squares += term * term;
      }
      if (std::fabs(error) > kChance * std::sqrt(squares)) return true;
    }
    return false;
  }

  // On a few outputs.
  double sift(const DecodingFit& fit, const std::vector<int64_t>& outputs) const {
    const Products products = multiply(&fit, outputs, few_x_, Bound::kExact);
    double worst = 0;
    for (int64_t r = 0; r < few_x_.rows; ++r) {
      const int64_t row = few_rows_[static_cast<size_t>(r)];
      const Held held = hold(recorded(row, outputs), products, r);
      worst = std::max(worst, held.compared > 0 ? held.ratio : kInfinity);
    }
    return worst;
  }

  std::vector<DecodingFit> among(std::vector<DecodingFit> fits) const {
    // Most are so far off that a few numbers show it.
    const std::vector<int64_t> fewest = evenly(few_, 2);
    for (DecodingFit& fit : fits) {
      fit.ratio_before = before_;
      fit.rows = few_x_.rows;
      fit.ratio_after = sift(fit, fewest);
      if (fit.ratio_after < kOpen) fit.ratio_after = sift(fit, few_);
    }
    std::ranges::stable_sort(fits, {}, &DecodingFit::ratio_after);
    if (fits.size() > kMostTold) fits.resize(kMostTold);
    for (size_t i = 0; i < fits.size() && i < kMostHeldToAll; ++i)
      if (fits[i].ratio_after <= 1) hold_to_all(fits[i]);
    return fits;
  }

  // Every output decoded so; or else those that are wrong.
  void hold_to_all(DecodingFit& fit) const {
    for (const Bound bound : {Bound::kAtLeast, Bound::kExact}) {
      fit.outputs.clear();
      Products products = multiply(&fit, all_to(outputs_), x_, bound);
      count(products, fit);
      if (fit.explains()) return;
      if (std::ssize(wrong_) < outputs_) {
        keep_right_ones(products);
        fit.outputs = wrong_;
        count(products, fit);
      }
      if (fit.explains() || fit.ratio_after > kOpen) return;
    }
  }

  // Outputs that are right as they should be.
  void keep_right_ones(Products& products) const {
    std::vector<bool> wrong(static_cast<size_t>(outputs_));
    for (const int64_t output : wrong_) wrong[static_cast<size_t>(output)] = true;
    for (int64_t i = 0; i < outputs_; ++i) {
      if (wrong[static_cast<size_t>(i)]) continue;
      for (int64_t r = 0; r < x_.rows; ++r) {
        products.value.row(r)[i] = truth_.value.row(r)[i];
        products.variance.row(r)[i] = truth_.variance.row(r)[i];
        products.wild[static_cast<size_t>(i)] = truth_.wild[static_cast<size_t>(i)];
      }
    }
  }

  void count(const Products& products, DecodingFit& fit) const {
    fit.rows = x_.rows;
    fit.explained = 0;
    fit.ratio_after = 0;
    for (int64_t r = 0; r < x_.rows; ++r) {
      const Held held = hold({y_.row(r), static_cast<size_t>(outputs_)}, products, r);
      fit.ratio_after = std::max(fit.ratio_after, held.compared > 0 ? held.ratio : kInfinity);
      if (held.compared > 0 && held.ratio <= 1) ++fit.explained;
    }
  }

  // Decodings that some blocks of each wrong row may have.
  std::vector<DecodingFit> some_blocks() const {
    std::vector<DecodingFit> out;
    for (DecodingFit& fit : find_blocks({weight_, x_, y_, truth_.value, wrong_}, singles())) {
      fit.ratio_before = before_;
      hold_to_all(fit);
      if (fit.explains()) out.push_back(std::move(fit));
    }
    return out;
  }

  const op::Linear& linear_;
  const op::Weight& weight_;
  const parity::Arithmetic arithmetic_;
  const int threads_;
  const int64_t outputs_;
  Matrix x_;
  Matrix y_;
  std::vector<float> bias_;
  Products truth_;
  double before_ = 0;
  std::vector<int64_t> wrong_;  // outputs
  std::vector<int64_t> few_;    // of those
  std::vector<int64_t> few_rows_;
  Matrix few_x_;
};

}  // namespace

std::vector<DecodingFit> find_decoding(const Projection& projection, int threads) {
  return DecodingSearch(projection, threads).run();
}

}  // namespace lockstep::doctor
