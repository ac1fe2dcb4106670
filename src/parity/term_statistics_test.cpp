#include "parity/term_statistics.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "parity/noise_test_support.h"

namespace lockstep::parity {
namespace {

constexpr size_t kTogether = 8;  // numbers that are looked at together

// One by one.
size_t next_beyond_plainly(const std::vector<double>& recorded, const std::vector<double>& replayed,
                           const std::vector<double>& variances, size_t first, double ratio) {
  for (; first + kTogether <= recorded.size(); first += kTogether)
    for (size_t i = first; i < first + kTogether; ++i) {
      const double error = recorded[i] - replayed[i];
      const double enough = variances[i] * (ratio * ratio);
      if (!(error * error <= enough) || !(enough > 1e-290)) return first;
    }
  return first;
}

TEST(TermStatistics, FindsTheFirstThatIsBeyond) {
  Random random(fresh_seed());
  for (const size_t count : {1U, 7U, 8U, 63U, 64U, 65U, 127U, 255U, 257U, 1000U})
    for (const int64_t every : {3, 40, 400}) {
      SCOPED_TRACE(fmt::format("{} numbers, seed {}", count, fresh_seed()));
      std::vector<double> recorded(count), replayed(count), variances(count, 0.01);
      for (size_t i = 0; i < count; ++i) {
        replayed[i] = random.gaussian();
        recorded[i] = replayed[i] + 0.02 * random.uniform();
        if (random.below(every) == 0) recorded[i] += 1;
        if (random.below(10 * every) == 0) recorded[i] = std::nan("");
        if (random.below(10 * every) == 0) variances[i] = 0;
      }
      for (const double ratio : {0.0, 0.1, 2.0, 1e9})
        for (size_t first = 0; first < count; first += kTogether)
          ASSERT_EQ(next_beyond(recorded, replayed.data(), variances.data(), first, ratio),
                    next_beyond_plainly(recorded, replayed, variances, first, ratio))
              << "from " << first << " on, ratio " << ratio;
    }
}

TEST(TermStatistics, SumsHaveAllTerms) {
  Random random(fresh_seed());
  for (const size_t count : {0U, 1U, 7U, 8U, 255U, 257U}) {
    SCOPED_TRACE(fmt::format("{} numbers, seed {}", count, fresh_seed()));
    // Whole numbers: their sums are exact in any order.
    std::vector<double> numbers;
    double sum = 0;
    double squares = 0;
    for (size_t i = 0; i < count; ++i) {
      numbers.push_back(static_cast<double>(random.below(2001) - 1000));
      sum += numbers.back();
      squares += numbers.back() * numbers.back();
    }
    EXPECT_EQ(sum_of(numbers), sum);
    EXPECT_EQ(sum_of_squares(numbers), squares);
  }
}

}  // namespace
}  // namespace lockstep::parity
