// lockstep scan: statistics of traces and logs, and what their garbage is.
#include <cmath>
#include <cstdio>
#include <memory>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/shown_text.h"
#include "base/table.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/scan_report.h"
#include "forensics/scan.h"

namespace lockstep::cli {
namespace scan_command {

using forensics::Report;

struct Flags {
  std::vector<std::string> paths;
  std::string other;
  std::string numpy;
  bool stats = false;
  bool json = false;
};

struct Scanned {
  std::unique_ptr<forensics::Source> source;
  Report report;
};

Result<Scanned> scan_path(const std::string& path) {
  LS_TRY(auto source, forensics::Source::open(path));
  Report report = forensics::scan(*source);
  return Scanned{std::move(source), std::move(report)};
}

Result<int> run(const Flags& flags) {
  if (!flags.numpy.empty() && flags.paths.size() != 1)
    return error("--numpy takes one trace or log, not {}", flags.paths.size());
  if (!flags.other.empty() && flags.paths.size() != 1)
    return error("--compare takes one trace or log, not {}", flags.paths.size());
  std::vector<Scanned> all;
  for (const std::string& path : flags.paths) {
    LS_TRY(Scanned scanned, scan_path(path));
    all.push_back(std::move(scanned));
  }
  if (!flags.other.empty()) {
    LS_TRY(Scanned other, scan_path(flags.other));
    all.push_back(std::move(other));
  }
  if (!flags.numpy.empty()) LS_TRY_VOID(write_numpy(*all[0].source, all[0].report, flags.numpy));

  bool clean = true;
  for (const Scanned& scanned : all) clean = clean && scanned.report.clean();
  if (flags.json) {
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (const Scanned& scanned : all)
      files.push_back(to_json(*scanned.source, scanned.report, flags.stats));
    const nlohmann::ordered_json out = {{"clean", clean}, {"files", std::move(files)}};
    fmt::print("{}\n", json_text(out));
    return clean ? kDone : kFailedCheck;
  }
  const Screen screen = {Paint(terminal_colours(STDOUT_FILENO)),
                         terminal_width(STDOUT_FILENO, INT64_MAX)};
  if (all.size() > 1) {
    std::vector<const Report*> reports;
    for (const Scanned& scanned : all) reports.push_back(&scanned.report);
    print_summary(reports, screen);
  }
  for (const Scanned& scanned : all) print_report(scanned.report, screen);
  if (!flags.other.empty()) print_side_by_side(all[0].report, all[1].report, screen);
  if (flags.stats)
    for (const Scanned& scanned : all) print_rows(*scanned.source, scanned.report, screen);
  return clean ? kDone : kFailedCheck;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_values(app, "paths", flags->paths, kTraceOrLog, "Traces (folders) or JSON Lines logs")
      ->required();
  app.add_flag("--stats", flags->stats, "Statistics of every checkpoint and position");
  add_value(app, "--numpy", flags->numpy, kOutputFile, "Write the statistics for numpy.load");
  add_value(app, "--compare", flags->other, kTraceOrLog,
            "Statistics side by side with those of another");
  app.add_flag("--json", flags->json, "As JSON, with every finding");
  return [flags] { return run(*flags); };
}

}  // namespace scan_command

const Command kScanCommand = {
    "scan",
    "Find garbage in traces and logs, and say what it is",
    "  lockstep scan trace\n"
    "  lockstep scan engine.jsonl --stats\n"
    "  lockstep scan gpt2.jsonl qwen2.jsonl llama.jsonl\n"
    "  lockstep scan trace --compare other_trace\n"
    "  lockstep scan trace --numpy stats.npz --json\n"
    "\n"
    "Garbage is what no model computes: memory that was freed or never written, numbers of "
    "another\n"
    "type read as floats, copies of other rows. --json has every finding; docs/scan-json.md says\n"
    "what its fields mean.\n"
    "Exit status: 0 clean, 1 garbage found, or a recording that broke off or has no number at "
    "all,\n"
    "2 unreadable.\n",
    scan_command::declare,
};

}  // namespace lockstep::cli
