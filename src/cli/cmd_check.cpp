// lockstep check: a suite of cases, each judged.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <unistd.h>

#include "base/memory.h"
#include "base/notice.h"
#include "base/places.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/compared_traces.h"
#include "cli/number_list.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "exec/product_devices.h"
#include "suite/against.h"
#include "suite/check.h"
#include "suite/writers.h"

namespace lockstep::cli {
namespace check_command {

namespace fs = std::filesystem;

struct Flags {
  std::vector<std::string> files;  // the suite, or results to merge
  bool merge = false;
  bool partial = false;
  suite::Against against;
  PromptFlags prompt;
  suite::RunOptions run;
  std::string cache;        // empty: the user's
  double cache_limit = 10;  // GB
  bool no_cache = false;
  std::string device;
  bool no_diagnosis = false;
  std::string part;
  std::string resume;
  std::string give_up;
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

void show(const std::string& text) {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stdout));
  std::fflush(stdout);
}

Result<suite::Results> merged(const Flags& flags) {
  std::vector<suite::Results> parts;
  for (const std::string& file : flags.files) {
    LS_TRY(parts.emplace_back(), suite::read_results(file));
  }
  return suite::merge(std::move(parts), flags.files, flags.partial);
}

// The suite of -m and --against.
Result<suite::Suite> suite_of_flags(const Flags& flags) {
  suite::Against asked = flags.against;
  if (asked.model.empty() || asked.suspect.empty())
    return error("check: found no suite, expected its file, or -m MODEL and --against SUSPECT");
  using Kind = suite::Prompt::Kind;
  if (flags.prompt.text) asked.prompt = {Kind::kText, *flags.prompt.text, {}};
  if (!flags.prompt.file.empty()) asked.prompt = {Kind::kFile, flags.prompt.file, {}};
  if (!flags.prompt.tokens.empty()) {
    LS_TRY(std::vector<int32_t> tokens, parse_token_ids(flags.prompt.tokens));
    asked.prompt = {Kind::kTokens, "", std::move(tokens)};
  }
  return suite::suite_against(asked);
}

Result<suite::Suite> suite_of(const Flags& flags) {
  const bool asked = !flags.against.model.empty() || !flags.against.suspect.empty();
  if (flags.files.empty()) return suite_of_flags(flags);
  if (asked) return error("check: found a suite and -m or --against, expected one of both");
  if (flags.files.size() != 1)
    return error("check: found {} files, expected one suite", flags.files.size());
  return suite::read_suite(flags.files[0]);
}

// Where reference traces are kept.
Result<void> set_cache(const Flags& flags, suite::RunOptions& options) {
  options.cache_bytes = static_cast<int64_t>(flags.cache_limit * 1e9);
  options.cache = flags.cache;
  if (flags.no_cache) options.cache.clear();
  if (flags.no_cache || !flags.cache.empty()) return {};
  // The user's own is a help, and no reason to fail.
  const auto root = cache_root();
  if (!root.ok()) return {};
  const fs::path folder = fs::path(*root) / "references";
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (!failed && ::access(folder.c_str(), W_OK) == 0) options.cache = folder.string();
  return {};
}

Result<suite::Results> run_suite(const Flags& flags, const suite::Suite& suite,
                                 const suite::Results* baseline, const Paint& paint) {
  suite::CheckOptions options;
  options.run = flags.run;
  options.run.cancel = &interrupted;
  if (flags.no_diagnosis) options.run.depth = 0;
  LS_TRY_VOID(set_cache(flags, options.run));
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
  options.give_up = flags.give_up;

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
    show(suite::terminal_line(one.results[0], paint));
    progress->advance(1);
  };
  watching.on_partial = [&](const suite::Results& results) {
    static_cast<void>(write_file(flags.json, suite::to_json(results)));  // the last one tells
  };
  return suite::check(suite, options, watching);
}

// Where the reports of --out lie, as seen from a folder.
std::string place_of_reports(const Flags& flags, const fs::path& from) {
  if (flags.run.out.empty()) return "";
  std::error_code failed;
  // Whether a name ends in a slash makes no difference.
  const auto folder = [&](const fs::path& path) {
    return (fs::absolute(path, failed).lexically_normal() / "").parent_path();
  };
  return folder(flags.run.out).lexically_relative(folder(from.empty() ? "." : from)).string();
}

Result<void> write_results(const Flags& flags, suite::Results& results) {
  results.reports = place_of_reports(flags, fs::path(flags.json).parent_path());
  LS_TRY_VOID(write_file(flags.json, suite::to_json(results)));
  LS_TRY_VOID(write_file(flags.junit, suite::junit_text(results)));
  LS_TRY_VOID(write_file(flags.markdown, suite::markdown_text(results)));
  LS_TRY_VOID(write_file(
      flags.html,
      suite::html_text(results, place_of_reports(flags, fs::path(flags.html).parent_path()))));
  results.reports = place_of_reports(flags, flags.history);
  if (!flags.history.empty()) LS_TRY_VOID(suite::add_to_history(results, flags.history));
  return suite::tell_github(results);
}

Result<int> run(const Flags& flags) {
  keep_freed_memory();
  if (flags.merge && flags.files.empty())
    return error("check --merge: found no file, expected the results of all parts");
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
    LS_TRY(const suite::Suite suite, suite_of(flags));
    LS_TRY(results, run_suite(flags, suite, nullptr, paint));
  }
  if (baseline) notes = suite::hold_against(*baseline, results);
  for (const suite::CaseResult& result : results.results)
    if (result.status == suite::Status::kFailed && result.parity)
      show(suite::terminal_line(result, paint));
  for (const std::string& note : notes) show(fmt::format("note: {}\n", note));
  LS_TRY_VOID(write_results(flags, results));
  show(suite::terminal_summary(results, paint));
  if (interrupted && ending_signal != 0) return 128 + ending_signal;
  return results.good() ? kDone : kFailedCheck;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_values(app, "suite", flags->files, kInputFile,
             "TOML file of cases (docs/check.md); with --merge: the results of all parts");
  add_value(app, "-m,--model", flags->against.model, kModel,
            "Without a suite: GGUF file or name of the model");
  add_value(app, "--against", flags->against.suspect, kSuspect,
            "Without a suite: llama.cpp, transformers, a device, a trace, or a command with "
            "{model}, {tokens}, {n} and {trace}");
  add_value(app, "--folder", flags->against.folder, kText,
            "With --against transformers: the folder or id of the hub that it reads");
  auto* text =
      add_value(app, "-p,--prompt", flags->prompt.text, kPromptText, "With --against: the prompt");
  auto* file = add_value(app, "-f,--file", flags->prompt.file, kInputFile,
                         "With --against: file with the prompt");
  auto* tokens = add_value(app, "--tokens", flags->prompt.tokens, kTokenIds,
                           "With --against: the prompt as token ids: 1,2,3");
  text->excludes(file)->excludes(tokens);
  file->excludes(tokens);
  add_value(app, "--reference", flags->against.reference, kDevice,
            "With --against: the device that is trusted")
      ->default_str(flags->against.reference);
  add_value(app, "--checkpoints", flags->against.checkpoints, kCheckpointSet,
            "With --against: logits, layers, ops, all, or names and globs separated by commas")
      ->default_str(flags->against.checkpoints);
  detail::add_checked(
      app, "-n,--max-tokens", kWholeNumber,
      "With --against: tokens to generate (default 16, or as the trace has)",
      [flags](const std::string& value) -> Result<void> {
        LS_TRY(flags->against.n, parse_number(value, NumberRange<int64_t>{0, suite::kMostTokens}));
        return {};
      });
  auto* merge = app.add_flag("--merge", flags->merge, "Make one of the results of all parts");
  app.add_flag("--partial", flags->partial,
               "With --merge: parts may be missing; the result is not complete then")
      ->needs(merge);
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
  auto* goldens = add_value(app, "--goldens", flags->run.goldens, kNewFolder,
                            "Take reference traces from this folder instead of making them");
  add_value(app, "--record-goldens", flags->run.record_goldens, kNewFolder,
            "Leave the reference traces in this folder, for --goldens")
      ->excludes(goldens);
  add_value(app, "--cache", flags->cache, kNewFolder,
            "Keep reference traces of our devices here for the next run (default: under "
            "$XDG_CACHE_HOME or ~/.cache)");
  show_default(add_number(app, "--cache-limit", flags->cache_limit, {0, 1e6},
                          "GB that this folder may take"),
               flags->cache_limit);
  app.add_flag("--no-cache", flags->no_cache, "Make reference traces anew, and keep none");
  add_value(app, "--part", flags->part, kPart, "Run only part K of N, for a matrix of machines");
  add_value(app, "--resume", flags->resume, kInputFile,
            "Results of a run that was ended: go on with what is missing");
  add_value(app, "--give-up", flags->give_up, kText,
            "Run nothing: cases without a result could not be judged, for this reason");
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
    "  lockstep check -m model.gguf --against llama.cpp\n"
    "  lockstep check -m model.gguf --against 'my_engine {model} --tokens {tokens} -o {trace}'\n"
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
