// What engines round before they compute: guesses for each kind of op, and how well they fit.
#pragma once

#include <string>
#include <vector>

#include "doctor/precision_sample.h"
#include "parity/own_error.h"

namespace lockstep::doctor {

// What is rounded, and what to call it.
struct Guess {
  std::string cause;
  std::string type;
  std::string of;
  Coarse coarse;
};

struct GuessFit {
  const Guess* guess = nullptr;
  int64_t explained = 0;
  double ratio = 0;  // worst
  double error = 0;  // root mean square over all rows, relative to the bound
  bool holds = false;
};

// The usual ones first.
std::vector<Guess> guesses_of(const PrecisionSample& sample);

// `errors`: of the sample's rows, by what is declared.
GuessFit hold_to(const Guess& guess, const PrecisionSample& sample,
                 const std::vector<parity::OwnError>& errors);

}  // namespace lockstep::doctor
