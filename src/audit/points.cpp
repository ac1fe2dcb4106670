#include "audit/points.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace lockstep::audit {
namespace {

constexpr int64_t kMostPieces = 256;
constexpr int64_t kMostPoints = 4096;
constexpr size_t kFewPoints = 16;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

double squared(double x) {
  return x * x;
}

// Infinite where one of the two is no number, or they are not the same infinity.
double squared_difference(float a, float b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = static_cast<double>(a) - b;
  return std::isfinite(difference) ? squared(difference) : kInfinite;
}

double finite_square(float x) {
  return std::isfinite(x) ? squared(x) : 0;
}

std::vector<int64_t> pieces_to_look_at(const Values& b, const Measured* measured) {
  std::vector<int64_t> pieces;
  if (measured != nullptr)
    for (size_t i = 0; i < measured->bad.size(); ++i)
      if (measured->bad[i] != 0) pieces.push_back(static_cast<int64_t>(i));
  if (pieces.empty())
    for (int64_t i = 0; i < (b.count() + kPiece - 1) / kPiece; ++i) pieces.push_back(i);
  const auto count = static_cast<int64_t>(pieces.size());
  if (count <= kMostPieces) return pieces;
  std::vector<int64_t> some;
  for (int64_t i = 0; i < kMostPieces; ++i)
    some.push_back(pieces[static_cast<size_t>(i * count / kMostPieces)]);
  return some;
}

}  // namespace

double limit_of(const Measured& measured) {
  constexpr double kSlack = 1.5;   // points have more chance in them than whole blocks
  constexpr double kUnlike = 0.7;  // numbers that have nothing to do with each other: 1.4
  constexpr double kNoNumbers = 1e-6;
  const double limit = kSlack * kTensorLimit * measured.expected_error;
  return std::isfinite(limit) ? std::min(limit, kUnlike) : kNoNumbers;
}

Points::Points(const Values& a, const Values& b, const Measured* measured) {
  // Without a measurement: the coarsest formats that there are.
  limit_ = measured != nullptr ? limit_of(*measured) : 0.5;
  Random random(7);
  const auto take = [&](int64_t index) {
    at_.push_back(index);
    b_.push_back(b.at(index));
    a_.push_back(index < a.count() ? a.at(index) : b_.back());
  };
  // Of few pieces all: a single number may be what is wrong.
  const std::vector<int64_t> pieces = pieces_to_look_at(b, measured);
  const int64_t of_piece = kMostPoints / std::max<int64_t>(std::ssize(pieces), 1);
  for (const int64_t piece : pieces) {
    const int64_t n = std::min(kPiece, b.count() - piece * kPiece);
    if (n <= of_piece)
      for (int64_t i = 0; i < n; ++i) take(piece * kPiece + i);
    else
      for (int64_t i = 0; i < of_piece; ++i) take(piece * kPiece + random.below(n));
  }
  // Numbers that are right say nothing about those that are wrong.
  double squares = 0;
  for (const float x : b_) squares += finite_square(x);
  const double rms = std::sqrt(squares / static_cast<double>(std::max<size_t>(b_.size(), 1)));
  std::vector<size_t> off;
  for (size_t i = 0; i < at_.size(); ++i)
    if (squared_difference(a_[i], b_[i]) > squared(limit_ * rms)) off.push_back(i);
  if (off.size() >= std::min(kFewPoints, at_.size())) {
    for (size_t i = 0; i < off.size(); ++i) {
      at_[i] = at_[off[i]];
      a_[i] = a_[off[i]];
      b_[i] = b_[off[i]];
    }
    at_.resize(off.size());
    a_.resize(off.size());
    b_.resize(off.size());
  }
  for (size_t i = 0; i < at_.size(); ++i) identity_ += squared_difference(a_[i], b_[i]);
  if (measured == nullptr) identity_ = kInfinite;
}

bool Points::fits(const Values& a, const Map& map) const {
  double errors = 0, squares_a = 0, squares_b = 0;
  for (size_t i = 0; i < at_.size(); ++i) {
    const float x = a.at(map(at_[i]));
    errors += squared_difference(x, b_[i]);
    squares_a += finite_square(x);
    squares_b += finite_square(b_[i]);
    // A few dozen points rule nearly everything out.
    if (i == 64 && errors > 4 * squared(limit_) * std::max(squares_a, squares_b)) return false;
  }
  return errors <= squared(limit_) * std::max(squares_a, squares_b) && errors < identity_ / 4 &&
         std::isfinite(errors);
}

Points::Line Points::line(double factor, double offset) const {
  double errors = 0, squares = 0;
  for (size_t i = 0; i < at_.size(); ++i) {
    if (!std::isfinite(a_[i]) || !std::isfinite(b_[i])) {
      if (squared_difference(a_[i], b_[i]) != 0) return {};
      continue;
    }
    errors += squared(b_[i] - factor * a_[i] - offset);
    squares += std::max(squared(b_[i]), squared(factor * a_[i]));
  }
  const bool fits = errors <= squared(limit_) * squares && errors < identity_ / 4;
  return {fits, factor, offset};
}

Points::Line Points::offset() const {
  double sum = 0;
  int64_t n = 0;
  for (size_t i = 0; i < at_.size(); ++i) {
    if (!std::isfinite(a_[i]) || !std::isfinite(b_[i])) continue;
    sum += static_cast<double>(b_[i]) - a_[i];
    ++n;
  }
  return n > 0 ? line(1, sum / static_cast<double>(n)) : Line{};
}

Points::Line Points::scale() const {
  double aa = 0, ab = 0;
  for (size_t i = 0; i < at_.size(); ++i) {
    if (!std::isfinite(a_[i]) || !std::isfinite(b_[i])) continue;
    aa += squared(a_[i]);
    ab += static_cast<double>(a_[i]) * b_[i];
  }
  return aa > 0 && ab != 0 ? line(ab / aa, 0) : Line{};
}

Points::Line Points::scale_and_offset() const {
  double n = 0, sum_a = 0, sum_b = 0;
  for (size_t i = 0; i < at_.size(); ++i) {
    if (!std::isfinite(a_[i]) || !std::isfinite(b_[i])) continue;
    n += 1;
    sum_a += a_[i];
    sum_b += b_[i];
  }
  if (n < static_cast<double>(kFewPoints)) return {};
  double aa = 0, ab = 0;
  for (size_t i = 0; i < at_.size(); ++i) {
    if (!std::isfinite(a_[i]) || !std::isfinite(b_[i])) continue;
    aa += squared(a_[i] - sum_a / n);
    ab += (a_[i] - sum_a / n) * (b_[i] - sum_b / n);
  }
  if (!(aa > 0) || ab == 0) return {};
  const double factor = ab / aa;
  return line(factor, (sum_b - factor * sum_a) / n);
}

bool Points::b_is_zero() const {
  return std::ranges::all_of(b_, [](float x) { return x == 0; });
}

}  // namespace lockstep::audit
