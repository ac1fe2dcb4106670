// How far one recorded row is from what it should have been.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::parity {

// A row's own error is a defect where its root mean square is this many times what rounding is
// expected to give in the worst honest order of summation, or a single element's this many times
// its own share (docs/numerics.md).
inline constexpr double kRowLimit = 4;
inline constexpr double kElementLimit = 16;

// One checkpoint at one position.
struct OwnError {
  int64_t position = 0;
  double error = 0;         // root mean square of recorded - replayed
  double expected = 0;      // root mean square of the rounding error of an honest engine
  int64_t worst_index = 0;  // of the element with the largest error over its own expectation
  double worst_ratio = 0;   // infinite where a score is masked and should not be, or the reverse
  double recorded = 0;      // that element, as recorded
  double replayed = 0;      // and as it should have been
  bool non_finite = false;  // a NaN or infinity that the inputs do not explain
  bool settled = true;      // false: it is less than others, and `expected` and ratios are limits

  double ratio() const;  // error over bound: more than 1 is a defect
  bool defect() const { return non_finite || ratio() > 1; }
  // As the worst of a checkpoint is chosen: the first of those that are equal.
  bool is_worse_than(const OwnError& other) const;
};

// `variance`: of the honest rounding error of each element. In `scores` minus infinity means
// masked, and engines may mask with a large negative number instead.
OwnError compare_row(std::span<const double> recorded, std::span<const double> replayed,
                     std::span<const double> variance, bool scores);

// Recorded minus replayed as far as it counts: 0 where nothing can be said of the element or both
// are masked, infinite for a NaN, an infinity or a mask that only one of them has.
double counted_error(double recorded, double replayed, bool scores);

// The elements of a row that are beyond `limit` times their own expected error, or not finite where
// they should be (or the reverse). In a row that is a defect those beyond kRowLimit are wrong by
// themselves.
std::vector<int64_t> elements_beyond(double limit, std::span<const double> recorded,
                                     std::span<const double> replayed,
                                     std::span<const double> variance, bool scores);

}  // namespace lockstep::parity
