#include "audit/measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "audit/rounding.h"
#include "base/parallel.h"
#include "base/random.h"

namespace lockstep::audit {
namespace {

constexpr int64_t kSampled = 128;    // pieces
constexpr int64_t kRun = 32;         // values that one best scale is for
constexpr int64_t kChunk = 1 << 14;  // values decoded at once
constexpr int64_t kBatch = 1 << 22;  // values between two reports of progress
// Times the sample's relative error: a piece beyond is looked at by itself.
constexpr double kSuspicion = 3;

// Sums over values t of the finer side and c of the other, with d = t - c.
struct Sums {
  double tt = 0, cd = 0, dd = 0, rest = 0;
  int64_t once = 0, twice = 0;

  Sums& operator+=(const Sums& other) {
    tt += other.tt;
    cd += other.cd;
    dd += other.dd;
    rest += other.rest;
    once += other.once;
    twice += other.twice;
    return *this;
  }
};

bool same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// What is left of dd when c is scaled as well as possible. cc = tt - 2 cd - dd.
double after_scaling(double tt, double cd, double dd) {
  const double cc = tt - 2 * cd - dd;
  return cc > 0 ? std::max(0.0, dd - cd * cd / cc) : dd;
}

Sums slow_sums(const float* t, const float* c, int64_t n) {
  Sums sums;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(t[i]) || !std::isfinite(c[i])) {
      (same(t[i], c[i]) ? sums.twice : sums.once) += 1;
      continue;
    }
    const double d = static_cast<double>(t[i]) - c[i];
    sums.tt += static_cast<double>(t[i]) * t[i];
    sums.cd += static_cast<double>(c[i]) * d;
    sums.dd += d * d;
  }
  sums.rest = after_scaling(sums.tt, sums.cd, sums.dd);
  return sums;
}

// Four lanes in a fixed order, so that compilers may use wide registers.
Sums run_sums(const float* t, const float* c) {
  constexpr int kLanes = 4;
  double tt[kLanes] = {}, cd[kLanes] = {}, dd[kLanes] = {};
  for (int64_t i = 0; i < kRun; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double x = t[i + lane], y = c[i + lane], d = x - y;
      tt[lane] += x * x;
      cd[lane] += y * d;
      dd[lane] += d * d;
    }
  }
  Sums sums;
  sums.tt = (tt[0] + tt[1]) + (tt[2] + tt[3]);
  sums.cd = (cd[0] + cd[1]) + (cd[2] + cd[3]);
  sums.dd = (dd[0] + dd[1]) + (dd[2] + dd[3]);
  if (!std::isfinite(sums.tt) || !std::isfinite(sums.dd)) return slow_sums(t, c, kRun);
  sums.rest = after_scaling(sums.tt, sums.cd, sums.dd);
  return sums;
}

Sums piece_sums(const float* t, const float* c, int64_t n) {
  Sums sums;
  int64_t i = 0;
  for (; i + kRun <= n; i += kRun) sums += run_sums(t + i, c + i);
  if (i < n) sums += slow_sums(t + i, c + i, n - i);
  return sums;
}

double relative_root(double errors, double squares) {
  if (errors == 0) return 0;
  return squares > 0 ? std::sqrt(errors / squares) : std::numeric_limits<double>::infinity();
}

// A pair as finer and coarser side.
class Measurement {
 public:
  Measurement(const Values& a, const Values& b, int64_t values)
      : finer_is_a_(bits(a.format()) >= bits(b.format())),
        finer_(finer_is_a_ ? a : b),
        coarser_(finer_is_a_ ? b : a),
        values_(values) {
    out_.values = values;
    out_.finer_is_a = finer_is_a_;
  }

  Measured run(const std::function<void(int64_t)>& advance) {
    sample();
    out_.bad.resize(static_cast<size_t>((values_ + kPiece - 1) / kPiece));
    Sums total;
    for (int64_t first = 0; first < values_; first += kBatch) {
      const int64_t n = std::min(kBatch, values_ - first);
      total += batch(first, n);
      advance(n);
    }
    out_.squares = total.tt;
    out_.square_errors = total.dd;
    out_.best_scale_errors = total.rest;
    out_.not_finite_once = total.once;
    out_.not_finite_twice = total.twice;
    const double cc = total.tt - 2 * total.cd - total.dd;
    out_.scale = cc > 0 ? 1 + total.cd / cc : 1;
    for (const uint8_t bad : out_.bad) out_.bad_pieces += bad;
    const double rest = out_.scaled_error =
        relative_root(after_scaling(total.tt, total.cd, total.dd), total.tt);
    // Encoders that do not fit their scales leave up to the square of the error; the rest is
    // chance.
    out_.tolerated_scale =
        2 * rest * rest + 6 * rest / std::sqrt(static_cast<double>(std::max<int64_t>(values_, 1))) +
        std::max(unit_of(finer_.format()), unit_of(coarser_.format()));
    return std::move(out_);
  }

 private:
  int64_t piece_size(int64_t piece) const { return std::min(kPiece, values_ - piece * kPiece); }

  void sample() {
    const int64_t pieces = (values_ + kPiece - 1) / kPiece;
    const int64_t taken = std::min(pieces, kSampled);
    std::vector<Sums> sums(static_cast<size_t>(taken));
    std::vector<Rounding> roundings(sums.size());
    Random random(20261116);
    std::vector<int64_t> chosen;
    for (int64_t i = 0; i < taken; ++i) {
      const int64_t begin = i * pieces / taken, end = (i + 1) * pieces / taken;
      chosen.push_back(begin + random.below(end - begin));
    }
    parallel_for(taken, 8, [&](int64_t begin, int64_t end) {
      std::array<float, kPiece> t, c;
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        const int64_t n = piece_size(chosen[at]);
        finer_.read(chosen[at] * kPiece, n, t.data());
        coarser_.read(chosen[at] * kPiece, n, c.data());
        sums[at] = piece_sums(t.data(), c.data(), n);
        roundings[at] = rounding_of(finer_.format(), coarser_.format(), t.data(), n);
      }
    });
    Sums total;
    Rounding rounding;
    for (const Sums& piece : sums) total += piece;
    for (const Rounding& piece : roundings) rounding += piece;
    out_.sample_error = relative_root(total.dd, total.tt);
    out_.encoder_error = relative_root(rounding.encoder, total.tt);
    out_.expected_error = relative_root(rounding.expected, total.tt);
    out_.sample_is_wrong = total.dd > kTensorLimit * kTensorLimit * rounding.expected;
  }

  Sums batch(int64_t first, int64_t n) {
    const int64_t chunks = (n + kChunk - 1) / kChunk;
    std::vector<Sums> parts(static_cast<size_t>(chunks));
    parallel_for(chunks, 2, [&](int64_t begin, int64_t end) {
      std::vector<float> t(static_cast<size_t>(std::min(kChunk, n)));
      std::vector<float> c(t.size());
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t at = chunk * kChunk;
        const int64_t count = std::min(kChunk, n - at);
        finer_.read(first + at, count, t.data());
        coarser_.read(first + at, count, c.data());
        parts[static_cast<size_t>(chunk)] = chunk_sums(first + at, count, t.data(), c.data());
      }
    });
    Sums total;
    for (const Sums& part : parts) total += part;  // in their order, whatever the threads
    return total;
  }

  Sums chunk_sums(int64_t first, int64_t n, const float* t, const float* c) {
    Sums total;
    for (int64_t i = 0; i < n; i += kPiece) {
      const int64_t count = std::min(kPiece, n - i);
      const Sums sums = piece_sums(t + i, c + i, count);
      if (is_bad(sums, t + i, count)) out_.bad[static_cast<size_t>((first + i) / kPiece)] = 1;
      total += sums;
    }
    return total;
  }

  bool is_bad(const Sums& sums, const float* t, int64_t n) const {
    if (sums.once > 0) return true;
    if (sums.dd == 0) return false;
    const double usual = kSuspicion * out_.expected_error;
    if (sums.dd <= usual * usual * sums.tt) return false;
    // Where the whole tensor is wrong, all such pieces are. Elsewhere the piece's own numbers
    // decide.
    if (out_.sample_is_wrong) return true;
    const Rounding rounding = rounding_of(finer_.format(), coarser_.format(), t, n);
    return sums.dd > kPieceLimit * kPieceLimit * rounding.expected;
  }

  const bool finer_is_a_;
  const Values& finer_;
  const Values& coarser_;
  const int64_t values_;
  Measured out_;
};

}  // namespace

double Measured::error() const {
  return relative_root(square_errors, squares);
}

double Measured::best_scale_error() const {
  return relative_root(best_scale_errors, squares);
}

bool Measured::explained() const {
  return not_finite_once == 0 && bad_pieces == 0 && !sample_is_wrong;
}

bool Measured::scaled() const {
  return not_finite_once == 0 && std::fabs(scale - 1) > tolerated_scale && scale != 0 &&
         scaled_error <= kTensorLimit * expected_error;
}

Measured measure(const Values& a, const Values& b, int64_t values,
                 const std::function<void(int64_t)>& advance) {
  return Measurement(a, b, values).run(advance);
}

}  // namespace lockstep::audit
