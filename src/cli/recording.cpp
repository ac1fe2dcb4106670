#include "cli/recording.h"

#include "cli/options.h"

namespace lockstep::cli {

trace::RecordOptions RecordingFlags::options() const {
  trace::RecordOptions options = trace;
  options.last_logits = logits == "last";
  return options;
}

void declare_recording(CLI::App& app, RecordingFlags& flags, const char* place, const char* help) {
  auto* trace = add_value(app, place, flags.trace.folder, kNewFolder, help);
  add_value(app, "--checkpoints", flags.trace.checkpoints, kCheckpointSet,
            "What to record: logits, layers, ops, all, or names and globs: embedding,blk.*.q")
      ->needs(trace)
      ->default_str(flags.trace.checkpoints);
  add_value(app, "--logits", flags.logits, kLogitRows,
            "Rows of logits to record: all, or last of each step")
      ->needs(trace)
      ->default_str(flags.logits);
  app.add_flag("--trace-drop", flags.trace.drop_when_slow,
               "Leave steps out, counted, rather than wait for a slow disk")
      ->needs(trace);
  app.add_flag("--durable", flags.trace.durable,
               "Sync every file of the trace to the disk, against power failures")
      ->needs(trace);
}

}  // namespace lockstep::cli
