#include "audit/rounding.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "audit/values.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace lockstep::audit {
namespace {

// Steps of a half float near zero, which scales have too.
constexpr double kSmallestHalf = 0x1p-24;

// Formats that we read and cannot write: the nearest that we can. Their errors are a little smaller
// than its.
quant::Format encoder_of(quant::Format format) {
  return quant::encodable(format) ? format : quant::Format::kQ4_0;
}

double encoding_error(quant::Format format, const float* values, int64_t n) {
  std::array<std::byte, kPiece * sizeof(float)> encoded;
  std::array<float, kPiece> decoded;
  quant::encode(format, values, n, encoded.data());
  quant::decode(format, encoded.data(), n, decoded.data());
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double difference = static_cast<double>(decoded[static_cast<size_t>(i)]) - values[i];
    // An overflow is no rounding: it allows nothing.
    if (std::isfinite(difference)) total += difference * difference;
  }
  return total;
}

double squares_of(const float* values, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(values[i]) * values[i];
  return total;
}

// Each value with its neighbour, at about the same magnitude.
std::array<float, kPiece> mixed(const float* values, int64_t n) {
  std::array<float, kPiece> out{};
  for (int64_t i = 0; i < n; ++i) {
    const int64_t other = (i ^ 1) < n ? i ^ 1 : i;
    out[static_cast<size_t>(i)] = 0.8f * values[i] + 0.6f * values[other];
  }
  return out;
}

// What the format may have done to values that lie near these. `encoder`: its error on these.
double format_error(const quant::FormatInfo& format, const float* values, int64_t n,
                    double encoder) {
  if (const double unit = unit_of(format); unit > 0) {
    // A sixth of the largest possible one: kTensorLimit squared (measure.h) is six and a quarter.
    const double step = format.format() == quant::Format::kF16 ? kSmallestHalf : 0;
    return std::max(
        encoder, (unit * unit * squares_of(values, n) + step * step * static_cast<double>(n)) / 6);
  }
  const quant::Format written = encoder_of(format.format());
  const double off_grid = encoding_error(written, mixed(values, n).data(), n);
  return std::max({encoder, off_grid, kSmallestHalf * kSmallestHalf * static_cast<double>(n) / 16});
}

}  // namespace

double unit_of(const quant::FormatInfo& format) {
  switch (format.format()) {
    case quant::Format::kF32:
      return 0x1p-23;
    case quant::Format::kF16:
      return 0x1p-10;
    case quant::Format::kBF16:
      return 0x1p-7;
    default:
      return 0;
  }
}

Rounding rounding_of(const quant::FormatInfo& finer, const quant::FormatInfo& coarser,
                     const float* values, int64_t n) {
  std::array<float, kPiece> finite{};
  for (int64_t i = 0; i < n; ++i)
    finite[static_cast<size_t>(i)] = std::isfinite(values[i]) ? values[i] : 0;
  Rounding out;
  out.encoder = encoding_error(encoder_of(coarser.format()), finite.data(), n);
  out.expected = format_error(coarser, finite.data(), n, out.encoder) +
                 format_error(finer, finite.data(), n, 0);
  return out;
}

}  // namespace lockstep::audit
