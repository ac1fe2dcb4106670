// lockstep doctor: why a trace is wrong, with every experiment.
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
namespace doctor_command {

constexpr int64_t kPlainWidth = 100;
// That the search for causes may always take: who asks for it waits.
constexpr double kSeconds = 300;

struct Flags {
  std::vector<std::string> traces;
  TracePaths paths;
  std::string positions;
  parity::CompareOptions options;
  int depth = doctor::Options().depth;
  std::string device;
  bool search = false;
  bool json = false;
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
  if (flags.traces.size() > 2)
    return error("doctor takes one trace or two, found {}", flags.traces.size());
  TracePaths paths = flags.paths;
  paths.reference = flags.traces[0];
  if (flags.traces.size() > 1) paths.suspect = flags.traces[1];
  LS_TRY(const Compared compared,
         compare_traces(paths, options,
                        {.depth = flags.depth, .seconds = kSeconds, .search = flags.search},
                        /*until_interrupted=*/true));
  LS_TRY_VOID(write_page(flags.page, compared));
  const int64_t width = terminal_width(STDOUT_FILENO, kPlainWidth);
  const Paint paint(terminal_colours(STDOUT_FILENO));
  const std::string shown =
      flags.json ? report::diagnosis_json(compared.comparison, compared.subject)
                 : report::terminal_report(compared.comparison, compared.subject, width, paint) +
                       report::diagnosis_report(compared.subject, width, paint);
  if (std::fwrite(shown.data(), 1, shown.size(), stdout) != shown.size() ||
      std::fflush(stdout) != 0)
    return error("cannot write to standard output");
  return compared.comparison.parity ? kDone : kFailedCheck;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_values(app, "traces", flags->traces, kTraceOrLog,
             "The trace (or JSONL log) in question; or two, the trusted one first")
      ->required();
  add_value(app, "-m,--model", flags->paths.model, kModel,
            "GGUF file or name of the model (default: the file that the traces name, where it is "
            "found)");
  add_suspect_model(app, flags->paths.suspect_model);
  add_value(app, "--checkpoints", flags->options.checkpoints, kCheckpointSet,
            "logits, layers, ops, all, or names and globs separated by commas")
      ->default_str(flags->options.checkpoints);
  add_value(app, "--positions", flags->positions, kNumberList,
            "Positions to replay, such as 0,5,10-20 (default: all)");
  show_default(add_number(app, "--depth", flags->depth, {1, 100},
                          "Causes that are looked for, on each side"),
               flags->depth);
  app.add_flag("--search", flags->search,
               "Where nothing is wrong, look for mistakes that hide in the rounding of a coarse "
               "type (docs/diagnosis.md)");
  add_value(app, "--names", flags->paths.names, kInputFile,
            "Name map of an engine that recorded under its own names (docs/name-maps.md)");
  add_judging_device(app, flags->device);
  add_threads(app, flags->options.threads);
  app.add_flag("--json", flags->json, "As JSON (docs/diagnosis.md)");
  add_page(app, flags->page);
  return [flags] { return run(*flags); };
}

}  // namespace doctor_command

const Command kDoctorCommand = {
    "doctor",
    "Say why a trace is wrong: the cause, its proof, every experiment",
    "  lockstep doctor mine.trace -m model.gguf\n"
    "  lockstep doctor reference.trace mine.trace -m model.gguf --json\n"
    "  lockstep doctor mine.trace -m model.gguf --html why.html\n"
    "\n"
    "Exit status: 0 nothing is wrong, 1 something is, 2 unreadable, or the wrong model.\n",
    doctor_command::declare,
};

}  // namespace lockstep::cli
