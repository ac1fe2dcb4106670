// Logs the first numbers of layer outputs and logits as JSON Lines while a model runs.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "op/observer.h"

namespace lockstep::trace {

struct JsonlLogOptions {
  std::string file;
  std::string team = "lockstep";
  int64_t values = 10;  // of each row

  // What ORCH_LOG_FILE, ORCH_LOG_TEAM and ORCH_LOG_VALUES ask for; no file: no log.
  static Result<JsonlLogOptions> from_environment();
};

// A line is written when its step is whole, and flushed: nothing waits for the end of the process.
class JsonlLogger : public op::Observer {
 public:
  // Appends where the file is there, as several runs of a suite do.
  static Result<std::unique_ptr<JsonlLogger>> create(const op::Program& program,
                                                     const JsonlLogOptions& options);
  ~JsonlLogger() override;

  void begin_step(int64_t first_position, int64_t tokens) override;
  bool wants(op::ValueId id) const override;
  void see(op::ValueId id, const View& view) override;
  void end_step(bool whole) override;

  Result<void> finish();  // whether everything was written

 private:
  Result<void> add_lines(op::ValueId id, const View& view);
  struct State;
  explicit JsonlLogger(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::trace
