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
  std::string part;
  std::string output;
  std::vector<std::string> merge;
  bool no_diagnosis = false;
  int depth = doctor::Options().depth;
  bool search = false;
  bool json = false;
  std::string junit;
  std::string markdown;
  std::string csv;
  Page page;
};

// What all parts were asked for; traces and model lie where they lay then, unless others are given.
void take_request(const parity::Findings& part, TracePaths& traces,
                  parity::CompareOptions& options) {
  if (traces.reference.empty()) traces.reference = part.paths.reference;
  if (traces.suspect.empty()) traces.suspect = part.paths.suspect;
  if (traces.model.empty()) traces.model = part.paths.model;
  if (traces.suspect_model.empty()) traces.suspect_model = part.paths.suspect_model;
  traces.names = part.paths.names;
  options.checkpoints = part.identity.checkpoints;
  options.positions = part.identity.positions;
}

Result<int> run_part(const Flags& flags, const parity::CompareOptions& options) {
  LS_TRY(const auto part, parse_part(flags.part));
  LS_TRY(const parity::Findings findings,
         compare_part_of_traces(flags.traces, options, {part.first, part.second}));
  LS_TRY_VOID(write_file(flags.output, parity::to_json(findings)));
  return kDone;
}

Result<int> run(const Flags& flags) {
  keep_freed_memory();
  TracePaths traces = flags.traces;
  parity::CompareOptions options = flags.options;
  if (!flags.positions.empty()) {
    LS_TRY(options.positions, parse_number_list(flags.positions));
  }
  LS_TRY(options.device, exec::create_products(flags.device));
  std::vector<parity::Findings> parts;
  for (const std::string& file : flags.merge) {
    LS_TRY(parts.emplace_back(), parity::read_findings(file));
  }
  if (!parts.empty()) {
    take_request(parts[0], traces, options);
    options.parts = &parts;
  }
  if (traces.suspect.empty())
    return error("compare: {} is missing, expected {}; usage: lockstep compare REFERENCE SUSPECT",
                 traces.reference.empty() ? "REFERENCE" : "SUSPECT", kTraceOrLog.expected);
  if (!flags.part.empty()) return run_part(flags, options);
  keep_rows(flags.page, options);
  LS_TRY(const Compared compared,
         compare_traces(traces, options,
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
  // Required, unless parts are merged.
  add_value(app, "reference", flags->traces.reference, kTraceOrLog,
            "Trace (or JSONL log) of the engine that is trusted");
  add_value(app, "suspect", flags->traces.suspect, kTraceOrLog,
            "Trace (or JSONL log) of the engine in question");
  add_value(app, "-m,--model", flags->traces.model, kModel,
            "GGUF file or name of the model: every op is replayed and both sides are judged "
            "(default: the file that the traces name, where it is found)");
  add_suspect_model(app, flags->traces.suspect_model);
  auto* checkpoints = add_value(app, "--checkpoints", flags->options.checkpoints, kCheckpointSet,
                                "logits, layers, ops, all, or names and globs separated by commas")
                          ->default_str(flags->options.checkpoints);
  auto* positions = add_value(
      app, "--positions", flags->positions, kNumberList,
      "Positions to replay, such as 0,5,10-20; the verdict is then about those (default: all)");
  auto* budget = add_number(
      app, "--budget", flags->options.budget, {0, 1e9},
      "Seconds that the replay may take, about: where all positions take longer, a sample is "
      "replayed, and the verdict is about that (default: no limit)");
  add_number(app, "--min-coverage", flags->options.min_coverage, {0, 1},
             "Less than this part of the rows on both sides, 0 to 1, is inconclusive");
  auto* names =
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
  auto* part = add_value(app, "--part", flags->part, kPart,
                         "Measure and judge only part K of N, for --merge: on many machines");
  auto* output = add_value(app, "-o,--output", flags->output, kOutputFile,
                           "With --part: the file for what it finds");
  part->needs(output)->excludes(budget);
  output->needs(part);
  auto* merge = add_values(app, "--merge", flags->merge, kInputFile,
                           "Judge by the files of all parts; traces and model are where they were "
                           "for the first one, unless they are given");
  merge->allow_extra_args(true)->excludes(part);
  for (CLI::Option* other : {checkpoints, positions, budget, names}) merge->excludes(other);
  for (const char* report : {"--min-coverage", "--no-diagnosis", "--depth", "--search", "--json",
                             "--html", "--html-limit", "--junit", "--markdown", "--csv"})
    part->excludes(app.get_option(report));
  return [flags] { return run(*flags); };
}

}  // namespace compare_command

const Command kCompareCommand = {
    "compare",
    "Compare two traces: verdict, first defect, which side is wrong",
    "  lockstep compare reference.trace mine.trace -m model.gguf\n"
    "  lockstep compare f16.trace q4.trace -m f16.gguf --suspect-model q4.gguf\n"
    "  lockstep compare a.trace b.trace --checkpoints layers --html report.html\n"
    "  lockstep compare a.trace b.trace --positions 0,5,10-20 --json\n"
    "  lockstep compare a.trace b.trace --junit parity.xml --markdown parity.md\n"
    "  lockstep compare a.trace b.trace -m model.gguf --part 2/8 -o part2.json\n"
    "  lockstep compare --merge part*.json --html report.html\n"
    "\n"
    "Exit status: 0 in parity, 1 not (or inconclusive: what was recorded does not reach the end), "
    "2\n"
    "unreadable, or the wrong model.\n",
    compare_command::declare,
};

}  // namespace lockstep::cli
