// lockstep export: a trace becomes a JSONL log or an archive for numpy.
#include <cstdio>
#include <memory>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "trace/checkpoints.h"
#include "trace/export.h"

namespace lockstep::cli {
namespace export_command {

struct Flags {
  std::string trace;
  std::string jsonl;
  std::string npz;
  std::string checkpoints = "all";
  int64_t values = 10;
};

Result<int> run(const Flags& flags) {
  if (flags.jsonl.empty() && flags.npz.empty()) return error("give --jsonl OUT or --npz OUT");
  LS_TRY(const trace::Trace trace, trace::Trace::open(flags.trace));
  std::vector<std::string> names;
  for (const trace::CheckpointInfo& info : trace.manifest().checkpoints) names.push_back(info.name);
  LS_TRY(const std::vector<std::string> chosen, trace::select_names(names, flags.checkpoints));
  if (!flags.jsonl.empty()) {
    LS_TRY(const int64_t lines, trace::export_jsonl(trace, chosen, flags.values, flags.jsonl));
    fmt::print("{}: {} lines\n", printable(flags.jsonl), lines);
  }
  if (!flags.npz.empty()) {
    LS_TRY(const int64_t arrays, trace::export_npz(trace, chosen, flags.npz));
    fmt::print("{}: {} arrays\n", printable(flags.npz), arrays);
  }
  return kDone;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "trace", flags->trace, kTrace, "The folder of the trace")->required();
  add_value(app, "--jsonl", flags->jsonl, kOutputFile,
            "JSON Lines: a line for each checkpoint and position");
  add_value(app, "--npz", flags->npz, kOutputFile,
            "For numpy.load: an array [positions, width] for each checkpoint, and 'positions'");
  add_value(app, "--checkpoints", flags->checkpoints, kCheckpointSet,
            "logits, layers, ops, all, or names and globs separated by commas")
      ->default_str(flags->checkpoints);
  show_default(add_number(app, "--values", flags->values, {1, int64_t{1} << 40},
                          "Numbers of each row in a JSONL log"),
               flags->values);
  return [flags] { return run(*flags); };
}

}  // namespace export_command

const Command kExportCommand = {
    "export",
    "Write a trace as JSON Lines or for numpy",
    "  lockstep export trace --jsonl trace.jsonl --checkpoints layers --values 10\n"
    "  lockstep export trace --npz logits.npz --checkpoints logits\n"
    "\n"
    "The arrays of --npz have the checkpoints' names, with / as %2F, and so for \\ : % and a dot "
    "in\n"
    "front. A checkpoint that lacks some positions has its own in NAME.positions.\n",
    export_command::declare,
};

}  // namespace lockstep::cli
