#include "quant/stats.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "quant/decode.h"

namespace lockstep::quant {

double Stats::deviation() const {
  const int64_t finite = values - non_finite;
  return finite > 0 ? std::sqrt(squares / static_cast<double>(finite)) : 0;
}

void Stats::add(float value) {
  ++values;
  if (!std::isfinite(value)) {
    if (non_finite++ == 0) first_non_finite = values - 1;
    return;
  }
  const int64_t finite = values - non_finite;
  min = finite == 1 ? value : std::min(min, value);
  max = finite == 1 ? value : std::max(max, value);
  if (value == 0) ++zeros;
  // Running mean and squares (Welford): no loss of digits where the mean is large.
  const double before = static_cast<double>(value) - mean;
  mean += before / static_cast<double>(finite);
  squares += before * (static_cast<double>(value) - mean);
}

void Stats::merge(const Stats& after) {
  const auto ours = static_cast<double>(values - non_finite);
  const auto theirs = static_cast<double>(after.values - after.non_finite);
  if (non_finite == 0 && after.non_finite > 0) first_non_finite = values + after.first_non_finite;
  if (theirs > 0) {
    min = ours > 0 ? std::min(min, after.min) : after.min;
    max = ours > 0 ? std::max(max, after.max) : after.max;
    const double apart = after.mean - mean;
    mean += apart * theirs / (ours + theirs);
    squares += after.squares + apart * apart * ours * theirs / (ours + theirs);
  }
  values += after.values;
  non_finite += after.non_finite;
  zeros += after.zeros;
}

Stats measure(Format format, const std::byte* source, int64_t values) {
  constexpr int64_t kPiece = 1 << 14;  // a multiple of every block
  const int64_t pieces = (values + kPiece - 1) / kPiece;
  std::vector<Stats> parts(static_cast<size_t>(pieces));
  parallel_for(pieces, 4, [&](int64_t begin, int64_t end) {
    std::vector<float> decoded(static_cast<size_t>(std::min(values, kPiece)));
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * kPiece;
      const int64_t n = std::min(kPiece, values - first);
      decode(format, source + size_bytes(info(format), first), n, decoded.data());
      Stats& part = parts[static_cast<size_t>(piece)];
      for (int64_t i = 0; i < n; ++i) part.add(decoded[static_cast<size_t>(i)]);
    }
  });
  Stats total;
  for (const Stats& part : parts) total.merge(part);
  return total;
}

}  // namespace lockstep::quant
