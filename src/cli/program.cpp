#include "cli/program.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/map_guard.h"
#include "base/no_throw.h"
#include "base/notice.h"
#include "cli/completion.h"
#include "cli/help_format.h"
#include "cli/words.h"
#include "cli/wrong_use.h"

namespace lockstep::cli {
namespace {

// Results that cannot be written are lost results: that is an error too.
Result<int> guarded(const std::function<Result<int>()>& command) {
  try {
    Result<int> outcome = command();
    if (outcome.ok() && any_map_was_cut())
      return error("a file got shorter while it was read: the results are of no use");
    if (outcome.ok() && std::fflush(stdout) != 0)
      return error("cannot write to standard output: {}", std::strerror(errno));
    return outcome;
  } catch (...) {  // fmt::print throws too
    return caught_error();
  }
}

// CLI11 would take --json=false, and --json=anything as well.
void refuse_values_of_flags(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (!takes_value(*option)) option->disable_flag_override();
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; }))
    refuse_values_of_flags(*sub);
}

int tell(const Result<int>& outcome) {
  if (outcome.ok()) return *outcome;
  notice("lockstep: {}\n", outcome.error().message);
  return kWrongUse;
}

}  // namespace

std::span<const Command* const> commands() {
  static const Command* const kCommands[] = {
      // A row a command, in the order of the help.
      // clang-format off
      &kRunCommand,
      &kServeCommand,
      &kCompareCommand,
      &kCheckCommand,
      &kDashboardCommand,
      &kDoctorCommand,
      &kCaptureCommand,
      &kModelsCommand,
      &kInspectCommand,
      &kTensorCommand,
      &kTokenizeCommand,
      &kQuantizeCommand,
      &kAuditCommand,
      &kQualityCommand,
      &kImatrixCommand,
      &kConvertCommand,
      &kForgeCommand,
      &kScanCommand,
      &kImportCommand,
      &kExportCommand,
      &kBenchCommand,
      &kDemoCommand,
      &kCompletionCommand,
      &kHelpCommand,
      // clang-format on
  };
  return kCommands;
}

std::vector<std::string> names_of_commands() {
  std::vector<std::string> names;
  for (const Command* command : commands()) names.emplace_back(command->name);
  return names;
}

Program::Program()
    : app_(
          "Lockstep runs GGUF language models, records what the forward pass computes, and tells\n"
          "where two engines part, by how much, which side is wrong, and why.") {
  app_.name("lockstep");
  app_.formatter(std::make_shared<HelpFormat>());
  app_.set_version_flag("--version", LOCKSTEP_VERSION);
  app_.require_subcommand(0, 1);
  app_.footer(
      "'lockstep help COMMAND' (or 'lockstep COMMAND --help') tells about a command, with\n"
      "examples. Exit status: 0 done, 1 a failed check, 2 wrong use or unreadable input.");
  for (const Command* command : commands()) {
    CLI::App* sub = app_.add_subcommand(command->name, command->summary);
    sub->footer(std::string("Examples:\n") + command->examples);
    auto body = command->declare(*sub);
    sub->callback([this, body] { chosen_ = body; });
  }
  refuse_values_of_flags(app_);
}

int Program::run(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == kCompleteWord)
    return tell(guarded([&] { return answer_completion(app_, arguments); }));
  return tell(guarded([&]() -> Result<int> {
    if (const std::optional<int> ended = parse(arguments)) return *ended;
    if (chosen_) return chosen_();
    fmt::print("{}", app_.help());  // nothing at all was asked for
    return kDone;
  }));
}

// The exit status where that is all, such as after the help.
std::optional<int> Program::parse(const std::vector<std::string>& arguments) {
  try {
    std::vector<std::string> words = words_for_cli11(app_, arguments);
    std::ranges::reverse(words);  // as CLI11 wants them
    app_.parse(words);
  } catch (const CLI::Success& asked) {  // for the help or the version
    return app_.exit(asked);
  } catch (const CLI::ParseError& problem) {
    notice("{}\n", wrong_use_text(app_, arguments, problem));
    return kWrongUse;
  }
  return std::nullopt;
}

}  // namespace lockstep::cli
