// The table of commands, and what is common to all: parsing, help, errors, exit status.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/ranges.h>

#include "base/near_names.h"
#include "base/text.h"
#include "cli/command.h"

namespace lockstep::cli {
namespace {

const std::vector<const Command*> kCommands = {
    // A row a command, in the order of the help.
    // clang-format off
    &kRunCommand,
    &kServeCommand,
    &kCompareCommand,
    &kCaptureCommand,
    &kModelsCommand,
    &kInspectCommand,
    &kTensorCommand,
    &kTokenizeCommand,
    &kQuantizeCommand,
    &kForgeCommand,
    &kScanCommand,
    &kImportCommand,
    &kExportCommand,
    &kBenchCommand,
    &kDemoCommand,
    &kCompletionCommand,
    // clang-format on
};

// CLI11 says of an unknown command only that one is required.
bool unknown_command(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return false;
  const std::string_view given = argv[1];
  std::vector<std::string> names;
  for (const Command* command : kCommands) names.emplace_back(command->name);
  if (std::ranges::count(names, given) > 0) return false;
  const std::vector<std::string> near = near_names(given, names);
  fmt::print(stderr, "lockstep: no command '{}'; {}\n", printable(given),
             near.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                          : fmt::format("did you mean {}?", fmt::join(near, " or ")));
  return true;
}

// Results that cannot be written are lost results: that is an error too.
Result<int> guarded(const std::function<Result<int>()>& command) {
  try {
    Result<int> outcome = command();
    if (outcome.ok() && std::fflush(stdout) != 0)
      return error("cannot write to standard output: {}", std::strerror(errno));
    return outcome;
  } catch (const std::system_error& failure) {  // fmt::print throws these
    return error("{}", failure.what());
  } catch (const std::bad_alloc&) {
    return error("out of memory");
  }
}

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write, told as such
  if (unknown_command(argc, argv)) return kWrongUse;
  CLI::App app(
      "Lockstep runs GGUF language models, records what the forward pass computes, and tells\n"
      "where two engines part, by how much, which side is wrong, and why.");
  app.name("lockstep");
  app.set_version_flag("--version", LOCKSTEP_VERSION);
  app.require_subcommand(1);
  app.footer("'lockstep COMMAND --help' tells about a command, with examples.");
  std::function<Result<int>()> chosen;
  for (const Command* command : kCommands) {
    CLI::App* sub = app.add_subcommand(command->name, command->summary);
    sub->footer(std::string("Examples:\n") + command->examples);
    auto body = command->declare(*sub);
    sub->callback([&chosen, body] { chosen = body; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kDone : kWrongUse;
  }
  const Result<int> outcome = guarded(chosen);
  if (outcome.ok()) return *outcome;
  fmt::print(stderr, "lockstep: {}\n", outcome.error().message);
  return kWrongUse;
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  return lockstep::cli::main(argc, argv);
}
