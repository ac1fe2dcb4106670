// A suite of one case, without a file.
#pragma once

#include "suite/suite.h"

namespace lockstep::suite {

struct Against {
  std::string model;
  std::string suspect;  // a captured engine, a device, a trace or log, or a command
  std::string folder;   // of transformers: the model that it reads
  std::optional<Prompt> prompt;
  std::optional<int64_t> n;
  std::string reference = "reference";
  std::string checkpoints = "ops";
};

// Without a prompt: that of the trace, or some words.
Result<Suite> suite_against(const Against& asked);

}  // namespace lockstep::suite
