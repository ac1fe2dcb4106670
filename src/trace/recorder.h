// Writes a trace while a model runs.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "op/observer.h"
#include "trace/manifest.h"

namespace lockstep::trace {

struct RecordOptions {
  std::string folder;
  std::string checkpoints = "ops";  // see checkpoints.h
  bool last_logits = false;         // only the rows that are sampled from
  bool drop_when_slow = false;      // leave whole steps out where the disk cannot keep up
  bool durable = false;             // what is written outlasts a power failure
};

// Values are copied in see() and written by a thread of its own through a bounded queue: where the
// disk is slower than the model, the model waits (or steps are dropped, if told so). Everything is
// owned by this object and flushed by finish() or the destructor, never at exit of the process.
//
// A failure ends the recording, not the generation, whatever it is: a full disk, no memory, a value
// that an executor shows in another shape or not at all. No call throws; finish() tells it.
class Recorder : public op::Observer {
 public:
  // Creates the folder, which must not hold anything. `start` describes engine, model, prompt and
  // sampling.
  static Result<std::unique_ptr<Recorder>> create(const op::Program& program, DType dtype,
                                                  const RecordOptions& options,
                                                  const Manifest& start);
  // Without finish() the trace stays readable and says that it is not complete.
  ~Recorder() override;

  void begin_step(int64_t first_position, int64_t tokens) override;
  bool wants(op::ValueId id) const override;
  void see(op::ValueId id, const View& view) override;
  void end_step(bool whole) override;

  // Whether the executor should compute logits for every token.
  bool wants_all_logits() const;

  // How long the model has waited for the disk, in seconds.
  double waited() const;

  // Writes what is left. `tokens`: all of them, prompt first. Not complete: the generation was cut
  // short, and the manifest says so.
  Result<void> finish(const std::vector<int32_t>& tokens, bool complete = true);

 private:
  struct State;
  static Result<std::unique_ptr<Recorder>> begin(const op::Program& program, DType dtype,
                                                 const RecordOptions& options,
                                                 const Manifest& start);
  explicit Recorder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::trace
