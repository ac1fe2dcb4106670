// Honest arithmetic for tests: number types that round after every operation, and the orders in
// which engines add.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/float16.h"
#include "base/random.h"
#include "parity/arithmetic.h"

namespace lockstep::parity {

// Half precision or bfloat16. Every operation is computed in single precision and rounded, which
// gives the same as rounding the exact result once.
template <uint16_t (*kRound)(float), float (*kWiden)(uint16_t)>
struct Small {
  float value = 0;

  Small() = default;
  explicit Small(float x) : value(kWiden(kRound(x))) {}
  explicit Small(double x) : Small(static_cast<float>(x)) {}
  explicit operator double() const { return static_cast<double>(value); }
  explicit operator float() const { return value; }

  friend Small operator+(Small a, Small b) { return Small(a.value + b.value); }
  friend Small operator-(Small a, Small b) { return Small(a.value - b.value); }
  friend Small operator*(Small a, Small b) { return Small(a.value * b.value); }
  friend Small operator/(Small a, Small b) { return Small(a.value / b.value); }
};
using Half = Small<float_to_half, half_to_float>;
using Bfloat = Small<float_to_bfloat, bfloat_to_float>;

enum class Order {
  kSequential,
  kReversed,
  kPairwise,
  kLanes4,
  kLanes8,
  kLanes16,
  kBlocks32,
  kBlocks256,
  // Beyond those that every test tries.
  kLanes128,
  kSplit4,
  kShuffled,
  kCompensated
};
inline constexpr std::array kOrders = {Order::kSequential, Order::kReversed, Order::kPairwise,
                                       Order::kLanes4,     Order::kLanes8,   Order::kLanes16,
                                       Order::kBlocks32,   Order::kBlocks256};

inline constexpr std::array kManyOrders = {
    Order::kSequential, Order::kReversed, Order::kPairwise, Order::kLanes4,
    Order::kLanes8,     Order::kLanes16,  Order::kBlocks32, Order::kBlocks256,
    Order::kLanes128,   Order::kSplit4,   Order::kShuffled, Order::kCompensated};

constexpr std::string_view name(Order order) {
  constexpr std::string_view kNames[] = {
      "sequential",   "reversed",      "pairwise",  "4 lanes",     "8 lanes",  "16 lanes",
      "blocks of 32", "blocks of 256", "128 lanes", "four splits", "shuffled", "compensated"};
  return kNames[static_cast<int>(order)];
}

template <class T>
T add_sequentially(std::span<const T> terms) {
  T sum{};
  for (const T& term : terms) sum = sum + term;
  return sum;
}

template <class T>
T add_pairwise(std::span<const T> terms) {
  if (terms.size() <= 1) return terms.empty() ? T{} : terms[0];
  const size_t half = terms.size() / 2;
  return add_pairwise(terms.first(half)) + add_pairwise(terms.subspan(half));
}

template <class T>
T add_in_lanes(std::span<const T> terms, size_t lanes) {
  std::vector<T> sums(lanes);
  for (size_t i = 0; i < terms.size(); ++i) sums[i % lanes] = sums[i % lanes] + terms[i];
  return add_pairwise(std::span<const T>(sums));
}

template <class T>
T add_in_blocks(std::span<const T> terms, size_t block) {
  T sum{};
  for (size_t first = 0; first < terms.size(); first += block)
    sum = sum + add_sequentially(terms.subspan(first, std::min(block, terms.size() - first)));
  return sum;
}

// Kahan's.
template <class T>
T add_compensated(std::span<const T> terms) {
  T sum{};
  T lost{};
  for (const T& term : terms) {
    const T wanted = term - lost;
    const T next = sum + wanted;
    lost = (next - sum) - wanted;
    sum = next;
  }
  return sum;
}

template <class T>
T add_up(std::span<const T> terms, Order order) {
  switch (order) {
    case Order::kSequential:
      break;
    case Order::kReversed: {
      const std::vector<T> reversed(terms.rbegin(), terms.rend());
      return add_sequentially(std::span<const T>(reversed));
    }
    case Order::kPairwise:
      return add_pairwise(terms);
    case Order::kLanes4:
      return add_in_lanes(terms, 4);
    case Order::kLanes8:
      return add_in_lanes(terms, 8);
    case Order::kLanes16:
      return add_in_lanes(terms, 16);
    case Order::kBlocks32:
      return add_in_blocks(terms, 32);
    case Order::kBlocks256:
      return add_in_blocks(terms, 256);
    case Order::kLanes128:
      return add_in_lanes(terms, 128);
    case Order::kSplit4:
      return add_in_blocks(terms, (terms.size() + 3) / 4);
    case Order::kShuffled: {
      std::vector<T> shuffled(terms.begin(), terms.end());
      Random random(terms.size());
      for (size_t i = shuffled.size(); i > 1; --i)
        std::swap(shuffled[i - 1],
                  shuffled[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
      return add_sequentially(std::span<const T>(shuffled));
    }
    case Order::kCompensated:
      return add_compensated(terms);
  }
  return add_sequentially(terms);
}

inline double round_to(double x, DType dtype) {
  const auto single = static_cast<float>(x);
  switch (dtype) {
    case DType::kF64:
      return x;
    case DType::kF32:
      return static_cast<double>(single);
    case DType::kF16:
      return static_cast<double>(half_to_float(float_to_half(single)));
    case DType::kBF16:
      break;
  }
  return static_cast<double>(bfloat_to_float(float_to_bfloat(single)));
}

// To whole numbers up to `levels` times a scale for each block, as engines do before quantized
// products; those with 8 bits keep the scale in half precision.
template <class T>
std::vector<T> round_to_levels(std::span<const T> x, int64_t levels, size_t block) {
  std::vector<T> out(x.size());
  for (size_t first = 0; first < x.size(); first += block) {
    const size_t end = std::min(x.size(), first + block);
    float largest = 0;
    for (size_t i = first; i < end; ++i)
      largest = std::max(largest, std::abs(static_cast<float>(x[i])));
    const float scale = largest / static_cast<float>(levels);
    const float inverse = scale > 0 ? 1 / scale : 0;
    const float kept = levels == kInt8Levels ? half_to_float(float_to_half(scale)) : scale;
    for (size_t i = first; i < end; ++i)
      out[i] = static_cast<T>(kept * std::nearbyint(static_cast<float>(x[i]) * inverse));
  }
  return out;
}

}  // namespace lockstep::parity
