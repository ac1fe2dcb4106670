// Two traces, or one against its model file, as `compare` and `doctor` take them.
#pragma once

#include <string>

#include "base/result.h"
#include "parity/compare.h"
#include "report/report.h"

namespace lockstep::cli {

struct TracePaths {
  std::string reference;  // trace or log
  std::string suspect;    // empty: the reference is held against the model file alone
  std::string model;      // empty: the one that the traces name
  std::string names;      // name map; empty: none
};

struct Compared {
  parity::Comparison comparison;
  report::Subject subject;  // with diagnoses
};

// How far causes are looked for.
struct Diagnosing {
  int depth = 0;       // causes, on each side; 0: none
  double seconds = 0;  // at least; as long as the comparison took in any case
};

Result<Compared> compare_traces(const TracePaths& paths, parity::CompareOptions options,
                                const Diagnosing& diagnosing);

}  // namespace lockstep::cli
