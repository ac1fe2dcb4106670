// Recording one generation: a trace where one is asked for, and the log that ORCH_LOG_FILE names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/session.h"
#include "trace/jsonl_logger.h"
#include "trace/recorder.h"

namespace lockstep::engine {

// What a trace's manifest says before there is a prompt: engine, arithmetic, model.
trace::Manifest describe(const model::Model& model, const exec::Device& device,
                         const exec::Executor& executor);

class Recording {
 public:
  // `options` without a folder: no trace. `manifest` is of describe(); the request's prompt and
  // sampling are added, and its text where there is one.
  static Result<Recording> start(const trace::RecordOptions& options,
                                 const trace::JsonlLogOptions& log, const Session& session,
                                 trace::Manifest manifest, const Request& request,
                                 const std::string& prompt_text);

  // Tells the request who watches.
  void attach(Request& request);

  // How long the model has waited for the disk, in seconds.
  double waited() const { return recorder_ != nullptr ? recorder_->waited() : 0; }

  // Writes what is left, so that a disk that is full shows. Not complete: the generation was cut
  // short, and the trace says so.
  Result<void> finish(const std::vector<TokenId>& prompt, const std::vector<TokenId>& generated,
                      bool complete = true);

 private:
  Recording() = default;
  std::unique_ptr<trace::Recorder> recorder_;
  std::unique_ptr<trace::JsonlLogger> logger_;
  op::Observers observers_;
};

}  // namespace lockstep::engine
