// The rows of a table show their decoding as it is: nothing was multiplied.
#include <algorithm>
#include <cmath>
#include <limits>

#include "doctor/find_decoding.h"
#include "doctor/some_blocks.h"
#include "parity/own_error.h"
#include "parity/rounding.h"

namespace lockstep::doctor {
namespace {

constexpr size_t kMostLookupsTold = 8;
constexpr int64_t kMostLookups = 64;

class LookupSearch {
 public:
  explicit LookupSearch(const Lookup& lookup)
      : table_(lookup.table),
        y_(lookup.y),
        arithmetic_(lookup.arithmetic),
        rows_(lookup.rows.first(
            static_cast<size_t>(std::min<int64_t>(kMostLookups, std::ssize(lookup.rows))))),
        width_(table_.format->block_values),
        columns_(std::min(table_.columns, y_.columns) / width_ * width_) {}

  std::vector<DecodingFit> run() const {
    if (!parity::is_quantized(table_) || rows_.empty() || columns_ == 0) return {};
    const double before = worst(nullptr);
    if (before <= 1) return {};
    std::vector<DecodingFit> found;
    const auto all = decodings_of(table_.format->format());
    for (const Decoding& decoding : all)
      if (applies(decoding, table_)) found.push_back(held({.decoding = &decoding}, before));
    if (std::ranges::none_of(found, &DecodingFit::explains)) add_some_blocks(found, before);
    if (std::ranges::none_of(found, &DecodingFit::explains))
      for (const Decoding& first : all)
        for (const Decoding& second : all)
          if (&first < &second && first.how != second.how && first.alter && second.alter) {
            DecodingFit fit{.decoding = &first, .also = &second};
            if (ratio(&fit, 0, 0, width_) <= 1) found.push_back(held(std::move(fit), before));
          }
    std::ranges::stable_sort(found, [](const DecodingFit& a, const DecodingFit& b) {
      if (a.explains() != b.explains()) return a.explains();
      return a.ratio_after < b.ratio_after;
    });
    while (found.size() > kMostLookupsTold && !found.back().explains()) found.pop_back();
    return found;
  }

 private:
  // Of columns `first` to `end` of a looked-up row: the error over the judge's bound. Negative: no
  // number is finite there, neither as recorded nor as decoded, which says nothing.
  double ratio(const DecodingFit* fit, size_t row, int64_t first, int64_t end) const {
    std::vector<float> decoded(static_cast<size_t>(table_.columns));
    decode_fit_row(table_, rows_[row], fit, decoded.data());
    return ratio(decoded, row, first, end);
  }

  double ratio(const std::vector<float>& decoded, size_t row, int64_t first, int64_t end) const {
    std::vector<double> actual, truth, variance;
    for (int64_t i = first; i < end; ++i) {
      const auto value = static_cast<double>(decoded[static_cast<size_t>(i)]);
      const double recorded = y_.row(static_cast<int64_t>(row))[i];
      if (std::isfinite(value) != std::isfinite(recorded))
        return std::numeric_limits<double>::infinity();
      if (!std::isfinite(value)) continue;
      actual.push_back(recorded);
      truth.push_back(value);
      variance.push_back(parity::handed_on(value, arithmetic_) +
                         parity::rounded_once(value, parity::kSingle));
    }
    if (actual.empty()) return -1;
    return parity::compare_row(actual, truth, variance, false).ratio();
  }

  double worst(const DecodingFit* fit) const {
    double out = 0;
    for (size_t r = 0; r < rows_.size(); ++r) out = std::max(out, ratio(fit, r, 0, columns_));
    return out;
  }

  DecodingFit held(DecodingFit fit, double before) const {
    fit.rows = std::ssize(rows_);
    fit.ratio_before = before;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const double each = ratio(&fit, r, 0, columns_);
      fit.ratio_after = std::max(fit.ratio_after, each);
      fit.explained += each >= 0 && each <= 1 ? 1 : 0;
      fit.rows -= each < 0 ? 1 : 0;
    }
    return fit;
  }

  // By block of all rows: whether the decoding is right there.
  std::vector<bool> right_blocks(const DecodingFit* fit) const {
    std::vector<bool> out(static_cast<size_t>(columns_ / width_), true);
    std::vector<float> decoded(static_cast<size_t>(table_.columns));
    for (size_t r = 0; r < rows_.size(); ++r) {
      decode_fit_row(table_, rows_[r], fit, decoded.data());
      for (size_t b = 0; b < out.size(); ++b) {
        const int64_t first = static_cast<int64_t>(b) * width_;
        out[b] = out[b] && ratio(decoded, r, first, first + width_) <= 1;
      }
    }
    return out;
  }

  void add_some_blocks(std::vector<DecodingFit>& found, double before) const {
    const std::vector<bool> truth = right_blocks(nullptr);
    std::vector<int64_t> wrong;
    for (size_t b = 0; b < truth.size(); ++b)
      if (!truth[b]) wrong.push_back(static_cast<int64_t>(b));
    if (wrong.empty() || wrong.size() == truth.size()) return;
    std::vector<DecodingFit> some;
    for (const DecodingFit& fit : found) {
      const std::vector<bool> right = right_blocks(&fit);
      if (!std::ranges::all_of(wrong, [&](int64_t b) { return right[static_cast<size_t>(b)]; }))
        continue;
      some.push_back(held({.decoding = fit.decoding, .blocks = wrong}, before));
    }
    std::ranges::move(some, std::back_inserter(found));
  }

  const op::Weight& table_;
  const Matrix& y_;
  const parity::Arithmetic arithmetic_;
  const std::span<const int64_t> rows_;
  const int64_t width_;
  const int64_t columns_;  // whole blocks of what was recorded
};

}  // namespace

std::vector<DecodingFit> find_decoding(const Lookup& lookup) {
  return LookupSearch(lookup).run();
}

}  // namespace lockstep::doctor
