// The sums of the reference executor. Its own rounding has to be far below what an engine in double
// precision is granted, in any order of summation, so long sums keep what rounding takes from them.
// The order is fixed: the same bits for any number of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lockstep::exec::reference {

// sum += term, exactly: what does not fit goes to `lost`.
inline void add_exactly(double term, double& sum, double& lost) {
  const double next = sum + term;
  const double part = next - sum;
  lost += (sum - (next - part)) + (term - part);
  sum = next;
}

// An infinite sum has lost infinity - infinity.
inline double with_lost(double sum, double lost) {
  const double total = sum + lost;
  return std::isnan(total) ? sum : total;
}

class Sum {
 public:
  void add(double term) { add_exactly(term, sum_, lost_); }
  double value() const { return with_lost(sum_, lost_); }

 private:
  double sum_ = 0;
  double lost_ = 0;
};

// Of the running sums of a dot product.
inline double across(const double* lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// Eight running sums, so that the compiler may use vector registers; after every 32 products of a
// running sum it goes into one that loses nothing.
inline double dot(const double* a, const double* b, int64_t count) {
  constexpr int kLanes = 8;
  constexpr int64_t kBlock = 32 * kLanes;
  double sums[kLanes] = {};
  double lost[kLanes] = {};
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t end = std::min(count, first + kBlock);
    double block[kLanes] = {};
    int64_t i = first;
    for (; i + kLanes <= end; i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) block[lane] += a[i + lane] * b[i + lane];
    for (; i < end; ++i) block[i % kLanes] += a[i] * b[i];
    for (int lane = 0; lane < kLanes; ++lane) add_exactly(block[lane], sums[lane], lost[lane]);
  }
  return with_lost(across(sums), across(lost));
}

}  // namespace lockstep::exec::reference
