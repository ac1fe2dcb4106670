// Seeded random numbers that are the same on every machine and standard library, which
// std::normal_distribution and its kin are not.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace lockstep {

// SplitMix64: a counter passed through a mixing function; any seed is a good one.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // In [0, 1), all 53 bits random.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  // In [0, count).
  int64_t below(int64_t count) {
    return static_cast<int64_t>(
        (static_cast<unsigned __int128>(next()) * static_cast<uint64_t>(count)) >> 64);
  }

  double gaussian() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace lockstep
