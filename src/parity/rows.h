// What there is to say of single rows (a checkpoint at a position), for those who show all of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parity/metrics.h"
#include "parity/own_error.h"

namespace lockstep::parity {

enum class Side { kReference, kSuspect, kBoth, kUndetermined };

// One side's own error at a position. Small, since there may be millions.
struct RowError {
  int64_t position = 0;
  float ratio = 0;  // error over bound; infinite for a NaN; a limit where the row is clearly right
  float error = 0;  // root mean square
};
RowError row_error(const OwnError& own);

// How far the sides are apart at a position.
struct RowDifference {
  int64_t position = 0;
  float relative_l2 = 0;  // infinite where only one side has a NaN or infinity
  float difference = 0;   // root mean square
};
RowDifference row_difference(int64_t position, const Metrics& metrics);

struct RowsOfCheckpoint {
  std::vector<RowDifference> compared;  // by position
  std::vector<int64_t> only_reference;  // positions that the other side lacks
  std::vector<int64_t> only_suspect;
  double allowed = 0;  // relative L2 that rounding by the declared precision may explain
};

struct PositionLogits {
  int64_t position = 0;
  LogitMetrics metrics;
};

struct SideTokens {
  std::vector<int32_t> ids;        // prompt first; empty: the side does not say
  int64_t prompt = 0;              // of those
  std::vector<std::string> texts;  // of each; empty: no tokenizer of its model is at hand
};

// A row with its numbers.
struct OpenedRow {
  struct Input {
    std::string name;
    int64_t width = 0;
    bool recorded = false;  // else computed from what lies before it
    double root_mean_square = 0;
    double largest = 0;       // by size
    bool by_element = false;  // element i of the row is made of its element i
  };
  struct Element {
    int64_t index = 0;
    double recorded = 0;
    double expected = 0;
    double ratio = 0;            // error over the element's own bound
    std::vector<double> inputs;  // of those by element
  };
  struct Head {
    double error = 0;     // root mean square
    double rounding = 0;  // that is expected
  };

  static constexpr int64_t kPoints = 1024;  // elements that are kept, at most

  std::string checkpoint;
  int64_t position = 0;
  // Undetermined: nothing was replayed; then recorded is the suspect's, expected the reference's.
  Side side = Side::kUndetermined;
  double ratio = 0;
  double error = 0;
  double bound = 0;
  int64_t elements = 0;
  int64_t keys = 0;  // of scores: numbers in a head
  std::vector<Head> heads;
  std::vector<Input> inputs;
  std::vector<Element> worst;
  // Elements by error over rounding: without error, below 2^kLowest, then a power of two each; the
  // last holds the rest.
  static constexpr int kLowest = -6;
  std::array<int64_t, 24> histogram = {};
  // Some elements, the worst among them; all where these are few.
  std::vector<int32_t> index;
  std::vector<float> recorded;
  std::vector<float> errors;  // recorded - expected
};

// A row beside what it should have been: everything but names, inputs and heads.
OpenedRow open_row(std::span<const double> recorded, std::span<const double> expected,
                   std::span<const double> variance, bool scores);

}  // namespace lockstep::parity
