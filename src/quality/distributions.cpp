#include "quality/distributions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"

namespace lockstep::quality {
namespace {

// Four at once: every machine has such registers, so results do not depend on what else it has.
using Lanes = float __attribute__((vector_size(16)));
using WholeLanes = int32_t __attribute__((vector_size(16)));
constexpr size_t kLanes = 4;

Lanes load(const float* x) {
  Lanes lanes;
  std::memcpy(&lanes, x, sizeof lanes);
  return lanes;
}

double sum(Lanes lanes) {
  return static_cast<double>(lanes[0] + lanes[1]) + static_cast<double>(lanes[2] + lanes[3]);
}

// e^x for x <= 0, off by less than 2e-7 of it. Both sides go through it alike, so that equal logits
// have a divergence of exactly 0.
Lanes exp_below(Lanes x) {
  constexpr float kLog2e = 1.44269504f, kHigh = 0.693359375f, kLow = -2.12194440e-4f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: the sum has no bits for a fraction
  constexpr Lanes kLeast = {-87, -87, -87, -87};
  x = x < kLeast ? kLeast : x;
  const Lanes n = (x * kLog2e + kRounder) - kRounder;
  const Lanes r = (x - n * kHigh) - n * kLow;
  Lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const WholeLanes exponents = (__builtin_convertvector(n, WholeLanes) + 127) << 23;
  Lanes powers;
  std::memcpy(&powers, &exponents, sizeof powers);
  return p * powers;
}

float largest(std::span<const float> values) {
  float out = values[0];
  size_t i = 0;
  if (values.size() >= kLanes) {
    Lanes most = load(values.data());
    for (i = kLanes; i + kLanes <= values.size(); i += kLanes) {
      const Lanes next = load(values.data() + i);
      most = next > most ? next : most;
    }
    out = std::max({most[0], most[1], most[2], most[3]});
  }
  for (; i < values.size(); ++i) out = std::max(out, values[i]);
  return out;
}

// Sums over the vocabulary; x and y are logits less their largest.
struct Sums {
  double p = 0;      // of e^x
  double q = 0;      // of e^y
  double apart = 0;  // of e^x * (x - y)

  void add(const float* reference, const float* suspect, size_t count, float most_p, float most_q) {
    Lanes p_sum = {}, q_sum = {}, apart_sum = {};
    for (size_t i = 0; i + kLanes <= count; i += kLanes) {
      const Lanes x = load(reference + i) - most_p, y = load(suspect + i) - most_q;
      const Lanes e = exp_below(x);
      p_sum += e;
      q_sum += exp_below(y);
      apart_sum += e * (x - y);
    }
    p += sum(p_sum);
    q += sum(q_sum);
    apart += sum(apart_sum);
  }
};

constexpr size_t kChunk = 256;  // numbers that are added in single precision

}  // namespace

void LogitRows::append(const View& logits) {
  vocabulary = logits.shape.back();
  const size_t before = values.size();
  values.resize(before + static_cast<size_t>(logits.size()));
  if (logits.dtype == DType::kF32) {
    std::copy_n(static_cast<const float*>(logits.data), logits.size(),
                values.begin() + static_cast<std::ptrdiff_t>(before));
    return;
  }
  for (int64_t i = 0; i < logits.size(); ++i)
    values[before + static_cast<size_t>(i)] = static_cast<float>(logits.at(i));
}

TokenScore score(std::span<const float> reference, std::span<const float> suspect,
                 exec::TokenId token) {
  const float most_p = largest(reference), most_q = largest(suspect);
  const size_t whole = reference.size() / kLanes * kLanes;
  Sums sums;
  for (size_t begin = 0; begin < whole; begin += kChunk)
    sums.add(reference.data() + begin, suspect.data() + begin, std::min(kChunk, whole - begin),
             most_p, most_q);
  if (whole < reference.size()) {  // the rest, filled up with what counts nothing
    float x[kLanes], y[kLanes];
    std::fill_n(x, kLanes, most_p - 1000);
    std::fill_n(y, kLanes, most_q - 1000);
    std::copy(reference.begin() + static_cast<std::ptrdiff_t>(whole), reference.end(), x);
    std::copy(suspect.begin() + static_cast<std::ptrdiff_t>(whole), suspect.end(), y);
    sums.add(x, y, kLanes, most_p, most_q);
  }
  const double log_p = std::log(sums.p), log_q = std::log(sums.q);
  const auto at = static_cast<size_t>(token);
  return {.reference = log_p - static_cast<double>(reference[at] - most_p),
          .suspect = log_q - static_cast<double>(suspect[at] - most_q),
          .kl = std::max(0.0, sums.apart / sums.p - log_p + log_q),
          .same = std::ranges::find(reference, most_p) - reference.begin() ==
                  std::ranges::find(suspect, most_q) - suspect.begin()};
}

Result<LogitRows> scored_logits(exec::Executor& executor, std::span<const exec::TokenId> tokens,
                                int64_t first_scored, op::Observer* observer) {
  // The logits of a token are the prediction of the next: those of the last are not needed.
  const auto last = static_cast<int64_t>(tokens.size()) - 1;
  const auto piece = [&](int64_t begin, int64_t end) {
    return tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  };
  executor.rewind(0);
  for (int64_t begin = 0; begin < first_scored - 1;) {
    const int64_t end = std::min(begin + executor.step_tokens(), first_scored - 1);
    LS_TRY_VOID(executor.run({.tokens = piece(begin, end), .observer = observer}));
    begin = end;
  }
  LogitRows out;
  for (int64_t begin = first_scored - 1; begin < last;) {
    const int64_t end = std::min(begin + executor.step_tokens(), last);
    LS_TRY(const View logits,
           executor.run({.tokens = piece(begin, end), .all_logits = true, .observer = observer}));
    out.append(logits);
    begin = end;
  }
  return out;
}

Result<void> check_finite(const LogitRows& logits, const std::string& path) {
  const bool finite = std::ranges::all_of(logits.values, [](float x) { return std::isfinite(x); });
  if (!finite)
    return error(
        "{}: some logits of this text are not finite, so there are no probabilities; "
        "'lockstep run --trace' and 'lockstep scan' find where they come from",
        path);
  return {};
}

std::vector<TokenScore> score_rows(const LogitRows& reference, const LogitRows& suspect,
                                   std::span<const exec::TokenId> tokens, int threads) {
  std::vector<TokenScore> out(tokens.size());
  parallel_rows(static_cast<int64_t>(tokens.size()), reference.vocabulary, threads,
                [&](int64_t row) {
                  const auto i = static_cast<size_t>(row);
                  out[i] = score(reference.row(row), suspect.row(row), tokens[i]);
                });
  return out;
}

}  // namespace lockstep::quality
