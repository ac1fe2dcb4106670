// lockstep check: a suite of cases, each judged.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <unistd.h>

#include "base/memory.h"
#include "base/notice.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/compared_traces.h"
#include "cli/number_list.h"
#include "cli/options.h"
#include "exec/product_devices.h"
#include "report/summary.h"
#include "suite/check.h"
#include "suite/writers.h"

namespace lockstep::cli {
namespace check_command {

namespace fs = std::filesystem;

struct Flags {
  std::vector<std::string> files;  // the suite, or results to merge
  bool merge = false;
  suite::RunOptions run;
  std::string device;
  bool no_diagnosis = false;
  std::string part;
  std::string resume;
  std::string baseline;
  std::string json;
  std::string junit;
  std::string markdown;
  std::string html;
  std::string history;
};

std::atomic<bool> interrupted = false;
std::atomic<int> ending_signal = 0;

// The first Ctrl-C or SIGTERM ends the suite with what there is; the second one the program.
void on_interrupt(int signal) {
  ending_signal = signal;
  interrupted = true;
  std::signal(signal, SIG_DFL);
}

std::string status_word(suite::Status status, const Paint& paint) {
  switch (status) {
    case suite::Status::kPassed:
      return paint.green("passed");
    case suite::Status::kKnown:
      return "known ";
    case suite::Status::kFailed:
      return paint.red("FAILED");
    case suite::Status::kError:
      break;
  }
  return paint.red("ERROR ");
}

// One line a case.
std::string line_of(const suite::CaseResult& result, const Paint& paint) {
  std::string text =
      fmt::format("{}  {}  ", status_word(result.status, paint), printable(result.id));
  if (result.status == suite::Status::kPassed) {
    text += result.verdict;
    if (result.worst_ratio)
      text += fmt::format(", error over bound {}", report::short_number(*result.worst_ratio));
    if (result.kl_mean) text += fmt::format(", KL {}", report::short_number(*result.kl_mean));
  } else {
    text += printable(result.reason, 500);
  }
  return text + paint.dim(fmt::format("  {:.2f} s", result.seconds)) + "\n";
}

void show(const std::string& text) {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stdout));
  std::fflush(stdout);
}

std::string summary_of(const suite::Results& results, const Paint& paint) {
  const auto count = [&](suite::Status status) { return results.count(status); };
  const int64_t failed = count(suite::Status::kFailed) + count(suite::Status::kError);
  std::string out =
      fmt::format("{} results: {} passed", results.results.size(), count(suite::Status::kPassed));
  if (count(suite::Status::kKnown) > 0)
    out += fmt::format(", {} known", count(suite::Status::kKnown));
  if (failed > 0) out += fmt::format(", {}", paint.red(fmt::format("{} failed", failed)));
  if (count(suite::Status::kError) > 0)
    out += fmt::format(" ({} of them could not be judged)", count(suite::Status::kError));
  out += fmt::format(", in {:.1f} s\n", results.seconds);
  if (!results.complete) out += "Not all cases have run.\n";
  for (const suite::KnownUse* use : results.stale())
    out += fmt::format("stale: the known defect of line {} ({}) was not met: {}\n", use->entry.line,
                       printable(use->entry.suspect, 60), printable(use->entry.reason, 200));
  return out;
}

Result<suite::Results> merged(const Flags& flags) {
  std::vector<suite::Results> parts;
  for (const std::string& file : flags.files) {
    LS_TRY(parts.emplace_back(), suite::read_results(file));
  }
  return suite::merge(std::move(parts), flags.files);
}

Result<suite::Results> run_suite(const Flags& flags, const suite::Suite& suite,
                                 const suite::Results* baseline, const Paint& paint) {
  suite::CheckOptions options;
  options.run = flags.run;
  options.run.cancel = &interrupted;
  if (flags.no_diagnosis) options.run.depth = 0;
  LS_TRY(options.run.compare.device, exec::create_products(flags.device));
  if (!flags.part.empty()) {
    LS_TRY(const auto part, parse_part(flags.part));
    options.part = {part.first, part.second};
  }
  std::optional<suite::Results> before;
  if (!flags.resume.empty()) {
    LS_TRY(before, suite::read_results(flags.resume));
    options.resume = &*before;
  }
  options.baseline = baseline;

  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  std::optional<Progress> progress;
  suite::Watching watching;
  watching.on_plan = [&](int64_t jobs) { progress.emplace("", jobs, "cases"); };
  watching.on_begin = [&](const suite::Job& job) { progress->label(job.id); };
  watching.on_end = [&](const suite::CaseResult& result) {
    progress->hide();
    suite::Results one;  // known defects are told as such at once
    one.results.push_back(result);
    suite::apply_known(suite.known, one);
    show(line_of(one.results[0], paint));
    progress->advance(1);
  };
  return suite::check(suite, options, watching);
}

// Where the reports of --out lie, as links of a page say it.
std::string place_of_reports(const Flags& flags) {
  if (flags.run.out.empty()) return "";
  std::error_code failed;
  const fs::path page = fs::absolute(fs::path(flags.html).parent_path(), failed);
  const fs::path place = fs::absolute(flags.run.out, failed).lexically_normal();
  return place.lexically_relative(page.lexically_normal()).string();
}

Result<void> write_results(const Flags& flags, const suite::Results& results) {
  LS_TRY_VOID(write_file(flags.json, suite::to_json(results)));
  LS_TRY_VOID(write_file(flags.junit, suite::junit_text(results)));
  LS_TRY_VOID(write_file(flags.markdown, suite::markdown_text(results)));
  LS_TRY_VOID(write_file(flags.html, suite::html_text(results, place_of_reports(flags))));
  if (!flags.history.empty()) LS_TRY_VOID(suite::add_to_history(results, flags.history));
  return suite::tell_github(results);
}

Result<int> run(const Flags& flags) {
  keep_freed_memory();
  if (!flags.merge && flags.files.size() != 1)
    return error("check: found {} files, expected one suite", flags.files.size());
  std::optional<suite::Results> baseline;
  if (!flags.baseline.empty()) {
    LS_TRY(baseline, suite::read_results(flags.baseline));
  }
  const Paint paint(terminal_colours(STDOUT_FILENO));
  suite::Results results;
  std::vector<std::string> notes;
  if (flags.merge) {
    LS_TRY(results, merged(flags));
  } else {
    LS_TRY(const suite::Suite suite, suite::read_suite(flags.files[0]));
    LS_TRY(results, run_suite(flags, suite, nullptr, paint));
  }
  if (baseline) notes = suite::hold_against(*baseline, results);
  for (const suite::CaseResult& result : results.results)
    if (result.status == suite::Status::kFailed && result.parity) show(line_of(result, paint));
  for (const std::string& note : notes) show(fmt::format("note: {}\n", note));
  LS_TRY_VOID(write_results(flags, results));
  show(summary_of(results, paint));
  if (interrupted && ending_signal != 0) return 128 + ending_signal;
  return results.good() ? kDone : kFailedCheck;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_values(app, "suite", flags->files, kInputFile,
             "TOML file of cases (docs/check.md); with --merge: the results of all parts");
  app.add_flag("--merge", flags->merge, "Make one of the results of all parts");
  add_value(app, "--json", flags->json, kOutputFile, "Write the results (docs/check.md)");
  add_value(app, "--junit", flags->junit, kOutputFile, "Write JUnit XML, a test case a result");
  add_value(app, "--markdown", flags->markdown, kOutputFile, "Write Markdown for a pull request");
  add_value(app, "--html", flags->html, kOutputFile,
            "Write a page of all cases, with links to the reports of --out");
  add_value(app, "--history", flags->history, kNewFolder,
            "Add the results to this folder, as a new file named by the time");
  add_value(app, "--out", flags->run.out, kNewFolder,
            "Keep traces, reports and output of cases that fail in this folder");
  add_value(app, "--baseline", flags->baseline, kInputFile,
            "Results of an earlier run: a case that got worse fails");
  add_number(app, "--min-coverage", flags->run.compare.min_coverage, {0, 1},
             "Less than this part of the rows on both sides, 0 to 1, is no pass");
  add_value(app, "--part", flags->part, kPart, "Run only part K of N, for a matrix of machines");
  add_value(app, "--resume", flags->resume, kInputFile,
            "Results of a run that was ended: go on with what is missing");
  app.add_flag("--no-diagnosis", flags->no_diagnosis,
               "Do not look for the causes of what is wrong");
  add_judging_device(app, flags->device);
  add_threads(app, flags->run.compare.threads);
  return [flags] { return run(*flags); };
}

}  // namespace check_command

const Command kCheckCommand = {
    "check",
    "Run a suite of cases (models, prompts, engines) and judge each, for CI",
    "  lockstep check suite.toml --json results.json --out failed\n"
    "  lockstep check suite.toml --part 2/8 --json part2.json\n"
    "  lockstep check --merge part*.json --json results.json\n"
    "  lockstep check suite.toml --baseline main.json --history runs\n"
    "\n"
    "Exit status: 0 all in parity (or known), 1 a defect or a case that could not be judged, 2 "
    "wrong "
    "use.\n",
    check_command::declare,
};

}  // namespace lockstep::cli
