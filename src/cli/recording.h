// Recording a run: what --trace and its flags ask for, and ORCH_LOG_FILE.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/result.h"
#include "cli/prompt.h"
#include "engine/session.h"
#include "trace/jsonl_logger.h"
#include "trace/recorder.h"

namespace lockstep::cli {

struct RecordingFlags {
  trace::RecordOptions trace;  // no folder: no trace
  std::string logits = "all";
};

void declare_recording(CLI::App& app, RecordingFlags& flags);

class Recording {
 public:
  static Result<Recording> start(const RecordingFlags& flags, const model::Model& model,
                                 const exec::Device& device, const engine::Session& session,
                                 const Prompt& prompt, const engine::Sampling& sampling);

  exec::Observer* observer();  // null: nothing is recorded
  bool wants_all_logits() const;
  Result<void> finish(const std::vector<engine::TokenId>& prompt,
                      const std::vector<engine::TokenId>& generated);

 private:
  Recording() = default;
  std::unique_ptr<trace::Recorder> recorder_;
  std::unique_ptr<trace::JsonlLogger> logger_;
  exec::Observers observers_;
};

}  // namespace lockstep::cli
