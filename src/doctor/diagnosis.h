// Why an engine is wrong: a cause, and what proves it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "doctor/worked_out.h"
#include "parity/compare.h"

namespace lockstep::doctor {

struct Parameter {
  std::string name;
  std::variant<std::string, int64_t, double> value;
};

inline constexpr const char* kUnknown = "unknown";

// One hypothesis that was tried, for those who want to see all.
struct Attempt {
  std::string cause;
  std::string text;
  double error = 0;   // root mean square of what it leaves, at some of the wrong rows
  double ratio = -1;  // error over bound, where it was judged; negative: it was not
};

// One number, worked out.
struct Element {
  int64_t position = 0;
  std::string place;  // place_of
  double recorded = 0;
  double expected = 0;               // by the op as it should be
  std::optional<double> found = {};  // by the hypothesis, where there is one
  Working right = {};                // how the expected one comes about
  Working wrong = {};                // and the one by the hypothesis
  // Some of the checkpoint's wrong rows as the hypothesis makes them, for those who show rows.
  struct Row {
    int64_t position = 0;
    std::vector<float> numbers;
  };
  std::vector<Row> rows = {};
};

struct Diagnosis {
  std::string cause = kUnknown;  // docs/diagnosis.md
  std::string text;              // one sentence, with the numbers
  std::vector<Parameter> parameters;
  parity::Side side = parity::Side::kSuspect;
  std::string checkpoint;          // the first that is wrong by it
  std::string after;               // where it is somewhere between this checkpoint and that one
  std::vector<int64_t> layers;     // that are; none: it lies outside the layers
  std::vector<int64_t> positions;  // that are wrong, over all its checkpoints
  // Proved: the op's own recorded inputs and its recorded result leave nothing else of what was
  // tried. Consistent: the same, of a stretch of several ops or by numbers fitted to all there is.
  bool proved = false;
  int64_t rows = 0;         // that were wrong
  int64_t explained = 0;    // of those, within rounding under the hypothesis
  double ratio_before = 0;  // error over bound of the worst of these rows
  double ratio_after = 0;
  std::string fix;                        // what to look at in the engine
  std::vector<std::string> alternatives;  // causes that explain it as well
  std::vector<std::string> checkpoints;   // all that are wrong by it
  std::vector<Attempt> attempts;          // at the first of them, the best first
  std::optional<Element> element;         // that is furthest off, where something explains it
  int64_t tried = 0;                      // hypotheses, there
  double error_before = 0;                // what Attempt::error is to be held against
};

// A number into a list that ascends, once.
void add_in_order(std::vector<int64_t>& list, int64_t number);

// A checkpoint that is wrong by it, with the positions where it is.
void add_checkpoint(Diagnosis& diagnosis, const parity::CheckpointResult& result,
                    const std::vector<int64_t>& positions);

}  // namespace lockstep::doctor
