// The engines that `capture` records, and the flags of each.
#pragma once

#include <vector>

#include "cli/python_environment.h"
#include "cli/value_kinds.h"

namespace lockstep::cli {

struct CapturedEngine {
  const char* module;
  bool reads_gguf;
  PythonNeeds needs;  // the packages are those of python/pyproject.toml
};

const std::vector<CapturedEngine>& captured_engines();

// A flag that the engine's module reads; handed on as it is.
struct CaptureFlag {
  const char* names;      // "-o,--output"; the long one is the module's
  const ValueKind* kind;  // null: no value
  const char* help;
  const char* engine = nullptr;  // null: all engines have it
  int64_t least = 0;             // of whole numbers
  int64_t most = 1 << 30;
};

const std::vector<CaptureFlag>& capture_flags();

}  // namespace lockstep::cli
