// Test-only: 8-bit numbers and scales as engines have them, the obvious way: by looking for the
// nearest of all numbers that a type has. Nothing of it is the judge's.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "parity/test_support.h"

namespace lockstep::engines {

// All non-negative numbers of a type with so many bits of exponent and fraction, and no infinity.
inline std::vector<double> small_floats(int exponents, int fractions, double largest) {
  std::vector<double> out;
  const int bias = (1 << (exponents - 1)) - 1;
  for (int e = 0; e < 1 << exponents; ++e)
    for (int f = 0; f < 1 << fractions; ++f) {
      const double fraction = static_cast<double>(f) / (1 << fractions);
      const double x = e == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, e - bias);
      if (x <= largest) out.push_back(x);
    }
  return out;
}

inline double nearest_small(double x, const std::string& type) {
  static const std::map<std::string, std::vector<double>> kTypes = {
      {"e4m3", small_floats(4, 3, 448)}, {"e5m2", small_floats(5, 2, 57344)}};
  const std::vector<double>& all = kTypes.at(type);
  const auto above = std::ranges::lower_bound(all, std::fabs(x));
  if (above == all.end()) return std::copysign(all.back(), x);  // saturates
  if (above == all.begin()) return std::copysign(*above, x);
  const double up = *above - std::fabs(x);
  const double down = std::fabs(x) - *(above - 1);
  const bool even = (above - all.begin()) % 2 == 0;
  return std::copysign(up < down || (up == down && even) ? *above : *(above - 1), x);
}

// Tensor cores that are given single precision read its first ten digits.
inline double to_tf32(double x, bool cut) {
  uint32_t bits = bits_from_float(static_cast<float>(x));
  if (!cut) bits += 0xfffu + ((bits >> 13) & 1u);
  return static_cast<double>(float_from_bits(bits & ~0x1fffu));
}

// Rows of `width` numbers, to what a manifest calls `name`.
template <class T>
void round_numbers(std::span<T> numbers, size_t width, const std::string& name) {
  if (name.empty()) return;
  const std::string type = name.substr(0, name.find(':'));
  if (const auto dtype = trace::find_dtype(type)) {
    for (T& x : numbers) x = static_cast<T>(parity::round_to(static_cast<double>(x), *dtype));
    return;
  }
  if (type == "tf32" || type == "tf32cut") {
    for (T& x : numbers) x = static_cast<T>(to_tf32(static_cast<double>(x), type == "tf32cut"));
    return;
  }
  const size_t colon = name.find(':');
  const std::string scale = colon == std::string::npos ? "" : name.substr(colon + 1);
  const size_t share = scale.starts_with("block") ? std::stoul(scale.substr(5))
                       : scale == "row"           ? width
                                                  : numbers.size();
  for (size_t row = 0; row < numbers.size(); row += scale == "tensor" ? numbers.size() : width) {
    const size_t row_end = scale == "tensor" ? numbers.size() : row + width;
    for (size_t first = row; first < row_end; first += share) {
      const auto some = numbers.subspan(first, std::min(share, row_end - first));
      float largest = 0;
      for (const T x : some) largest = std::max(largest, std::fabs(static_cast<float>(x)));
      const float levels = type == "int8" ? 127 : type == "e4m3" ? 448 : 57344;
      const float step = scale.empty() ? 1 : largest / levels;
      if (step == 0) continue;
      for (T& x : some) {
        const double scaled = static_cast<double>(static_cast<float>(x) / step);
        const double rounded =
            type == "int8" ? std::nearbyint(scaled) : nearest_small(scaled, type);
        x = static_cast<T>(rounded * static_cast<double>(step));
      }
    }
  }
}

}  // namespace lockstep::engines
