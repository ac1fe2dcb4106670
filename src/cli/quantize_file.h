// What `quantize` and `convert` do.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep::cli {

struct QuantizeFlags {
  std::string source;
  std::string target;
  std::string recipe;   // empty: the smallest float format that holds every weight as it is
  std::string tensors;  // a file that names a format for each tensor, in place of the recipe
  std::string imatrix;  // a file; empty: errors of all weights count the same
  bool pure = false;
  bool requantize = false;
  bool force = false;
  bool dry_run = false;
  bool json = false;
};

// Writes the file and says what became of each tensor: the exit status.
Result<int> quantize_file(const QuantizeFlags& flags);

}  // namespace lockstep::cli
