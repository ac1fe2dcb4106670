// The flags that say what is recorded of a run.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "trace/recorder.h"

namespace lockstep::cli {

struct RecordingFlags {
  trace::RecordOptions trace;  // no folder: no trace
  std::string logits = "all";

  trace::RecordOptions options() const;
};

// `place`: the flag that turns recording on, and its help.
void declare_recording(CLI::App& app, RecordingFlags& flags, const char* place = "--trace",
                       const char* help = "Record the forward pass in this new folder");

}  // namespace lockstep::cli
