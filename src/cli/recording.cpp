#include "cli/recording.h"

namespace lockstep::cli {

trace::RecordOptions RecordingFlags::options() const {
  trace::RecordOptions options = trace;
  options.last_logits = logits == "last";
  return options;
}

void declare_recording(CLI::App& app, RecordingFlags& flags, const char* place, const char* help) {
  auto* trace = app.add_option(place, flags.trace.folder, help);
  app.add_option("--checkpoints", flags.trace.checkpoints,
                 "What to record: logits, layers, ops, all, or names and globs: embedding,blk.*.q")
      ->needs(trace)
      ->capture_default_str();
  app.add_option("--logits", flags.logits, "Rows of logits to record: all, or last of each step")
      ->needs(trace)
      ->check(CLI::IsMember({"all", "last"}))
      ->capture_default_str();
  app.add_flag("--trace-drop", flags.trace.drop_when_slow,
               "Leave steps out, counted, rather than wait for a slow disk")
      ->needs(trace);
}

}  // namespace lockstep::cli
