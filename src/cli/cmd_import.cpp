// lockstep import: a JSONL log becomes a trace.
#include <cstdio>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/shown_text.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/log_problems.h"
#include "cli/options.h"
#include "trace/jsonl_import.h"

namespace lockstep::cli {
namespace import_command {

struct Flags {
  std::string log;
  std::string trace;
  bool json = false;
};

Result<int> run(const Flags& flags) {
  LS_TRY(const trace::ImportOutcome outcome, trace::import_jsonl(flags.log, flags.trace));
  int64_t left_out = 0;
  for (const trace::JsonlProblem& problem : outcome.problems)
    left_out += problem.kept ? 0 : problem.lines;
  if (flags.json) {
    nlohmann::ordered_json json = {{"trace", flags.trace},
                                   {"rows", outcome.rows},
                                   {"positions", outcome.positions},
                                   {"checkpoints", outcome.checkpoints},
                                   {"problems", problems_json(outcome.problems)}};
    fmt::print("{}\n", json_text(json));
  } else {
    print_problems(outcome.problems, flags.log, "--json");
    fmt::print("{}: {} rows, {} checkpoints at {} positions", printable(flags.trace), outcome.rows,
               outcome.checkpoints, outcome.positions);
    if (left_out > 0) fmt::print("; {} lines left out", left_out);
    fmt::print("\n");
  }
  return left_out > 0 ? kFailedCheck : kDone;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "log", flags->log, kLog, "The JSON Lines log")->required();
  add_value(app, "trace", flags->trace, kNewFolder, "The folder to write, new or empty")
      ->required();
  app.add_flag("--json", flags->json, "Print what was read, and every problem, as JSON");
  return [flags] { return run(*flags); };
}

}  // namespace import_command

const Command kImportCommand = {
    "import",
    "Make a trace of a JSON Lines log",
    "  lockstep import engine.jsonl engine_trace\n"
    "  lockstep import engine.jsonl engine_trace --json\n"
    "\n"
    "Exit status: 0 where every line was read, 1 where some were left out (told with line and\n"
    "column, lines that are wrong in the same way once), 2 where none could be.\n",
    import_command::declare,
};

}  // namespace lockstep::cli
