// The search for what explains one wrong checkpoint: all hypotheses are tried at a few rows, and
// what is left is judged at all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/examination.h"
#include "doctor/find_precision.h"

namespace lockstep::doctor {

// A hypothesis on some ops, and how it fared.
struct Trial {
  Hypothesis hypothesis;
  std::vector<size_t> ops;  // that are altered
  double error = 0;         // that it leaves at few()
  double least = 1;         // share of a row's error that it leaves, at the best of few()
  double ratio = -1;        // error over bound at few(); negative: not judged
  Judgement judgement;      // at all positions, where it got that far
  std::vector<std::string> alternatives = {};  // causes that explain as much
  bool contested = false;                      // one of them is as likely
};

struct Explanation {
  std::vector<Trial> chosen;  // one, or several that explain it together; empty: nothing does
  // Where nothing explains all of it: what explains nearly all of the error, at every row.
  std::optional<Trial> nearly;
  // Where what `chosen` leaves is rounding of the op that the engine does not declare.
  std::optional<PrecisionFinding> rounding;
  std::vector<Attempt> attempts;  // the best first
  int64_t tried = 0;
  bool complete = true;  // false: time ran out
  std::string seen;      // of the error, where nothing explains it
};

// `depth`: so many hypotheses may be needed together.
Explanation search(Examination& examination, int depth);

// Whether a hypothesis that was found elsewhere explains this one too.
std::optional<Trial> try_again(Examination& examination, const Trial& found);

// By the bound: at few(), and where that explains something at all positions.
void judge_trial(Examination& examination, Trial& trial);

// Which of two that explain it comes first: what holds at every position, needs fewer fitted
// numbers, is likelier.
bool before(const Trial& a, const Trial& b);

// Errors that differ by less are the same.
inline constexpr double kClearly = 1.01;

// A proof needs more than to come within the bound: the error must become much less, and about what
// this engine has where it is right (`usual`).
bool convinces(const Judgement& judgement, double usual);

}  // namespace lockstep::doctor
