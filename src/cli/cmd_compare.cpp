// lockstep compare: two traces side by side, with a verdict.
#include <cstdio>

#include <unistd.h>

#include "base/memory.h"
#include "cli/command.h"
#include "cli/compared_traces.h"
#include "cli/number_list.h"
#include "cli/options.h"
#include "doctor/doctor.h"
#include "exec/product_devices.h"

namespace lockstep::cli {
namespace compare_command {

// Lines for a pipe or a file.
constexpr int64_t kPlainWidth = 100;
// That the search for causes may always take.
constexpr double kSeconds = 10;

struct Flags {
  TracePaths traces;
  std::string positions;
  std::string device;
  parity::CompareOptions options;
  bool no_diagnosis = false;
  int depth = doctor::Options().depth;
  bool search = false;
  bool json = false;
  std::string junit;
  std::string markdown;
  std::string csv;
  Page page;
};

Result<int> run(const Flags& flags) {
  keep_freed_memory();
  parity::CompareOptions options = flags.options;
  if (!flags.positions.empty()) {
    LS_TRY(options.positions, parse_number_list(flags.positions));
  }
  LS_TRY(options.device, exec::create_products(flags.device));
  keep_rows(flags.page, options);
  LS_TRY(const Compared compared,
         compare_traces(flags.traces, options,
                        {flags.no_diagnosis ? 0 : flags.depth, kSeconds, flags.search}));
  const parity::Comparison& comparison = compared.comparison;
  const report::Subject& subject = compared.subject;
  LS_TRY_VOID(write_file(flags.junit, report::junit_report(comparison, subject)));
  LS_TRY_VOID(write_file(flags.markdown, report::markdown_report(comparison, subject)));
  LS_TRY_VOID(write_file(flags.csv, report::csv_report(comparison)));
  LS_TRY_VOID(write_page(flags.page, compared));
  const std::string shown =
      flags.json
          ? report::json_report(comparison, subject)
          : report::terminal_report(comparison, subject, terminal_width(STDOUT_FILENO, kPlainWidth),
                                    Paint(terminal_colours(STDOUT_FILENO)));
  if (std::fwrite(shown.data(), 1, shown.size(), stdout) != shown.size() ||
      std::fflush(stdout) != 0)
    return error("cannot write to standard output");
  return comparison.parity ? kDone : kFailedCheck;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "reference", flags->traces.reference, kTraceOrLog,
            "Trace (or JSONL log) of the engine that is trusted")
      ->required();
  add_value(app, "suspect", flags->traces.suspect, kTraceOrLog,
            "Trace (or JSONL log) of the engine in question")
      ->required();
  add_value(app, "-m,--model", flags->traces.model, kModel,
            "GGUF file or name of the model: every op is replayed and both sides are judged "
            "(default: the file that the traces name, where it is found)");
  add_value(app, "--checkpoints", flags->options.checkpoints, kCheckpointSet,
            "logits, layers, ops, all, or names and globs separated by commas")
      ->default_str(flags->options.checkpoints);
  add_value(
      app, "--positions", flags->positions, kNumberList,
      "Positions to replay, such as 0,5,10-20; the verdict is then about those (default: all)");
  add_number(
      app, "--budget", flags->options.budget, {0, 1e9},
      "Seconds that the replay may take, about: where all positions take longer, a sample is "
      "replayed, and the verdict is about that (default: no limit)");
  add_number(app, "--min-coverage", flags->options.min_coverage, {0, 1},
             "Less than this part of the rows on both sides, 0 to 1, is inconclusive");
  add_value(app, "--names", flags->traces.names, kInputFile,
            "Name map of an engine that recorded under its own names (docs/name-maps.md; those "
            "of llama.cpp and transformers are known)");
  add_judging_device(app, flags->device);
  app.add_flag("--no-diagnosis", flags->no_diagnosis,
               "Do not look for the causes of what is wrong");
  show_default(add_number(app, "--depth", flags->depth, {1, 100},
                          "Causes that are looked for, on each side"),
               flags->depth);
  app.add_flag("--search", flags->search,
               "Where nothing is wrong, look for mistakes that hide in the rounding of a coarse "
               "type (docs/diagnosis.md)");
  add_threads(app, flags->options.threads);
  app.add_flag("--json", flags->json, "As JSON (docs/compare-json.md)");
  add_page(app, flags->page);
  add_value(app, "--junit", flags->junit, kOutputFile, "Write JUnit XML, a test case a checkpoint");
  add_value(app, "--markdown", flags->markdown, kOutputFile, "Write Markdown for a pull request");
  add_value(app, "--csv", flags->csv, kOutputFile, "Write the metrics, a line a checkpoint");
  return [flags] { return run(*flags); };
}

}  // namespace compare_command

const Command kCompareCommand = {
    "compare",
    "Compare two traces: verdict, first defect, which side is wrong",
    "  lockstep compare reference.trace mine.trace -m model.gguf\n"
    "  lockstep compare a.trace b.trace --checkpoints layers --html report.html\n"
    "  lockstep compare a.trace b.trace --positions 0,5,10-20 --json\n"
    "  lockstep compare a.trace b.trace --junit parity.xml --markdown parity.md\n"
    "\n"
    "Exit status: 0 in parity, 1 not (or inconclusive: what was recorded does not reach the end), "
    "2\n"
    "unreadable, or the wrong model.\n",
    compare_command::declare,
};

}  // namespace lockstep::cli
