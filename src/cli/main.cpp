// The table of commands, and what is common to all: parsing, help, errors, exit status.
#include <cstdio>
#include <vector>

#include "cli/command.h"

namespace lockstep::cli {
namespace {

const std::vector<const Command*> kCommands = {
    // A row a command, in the order of the help.
    // clang-format off
    &kRunCommand,
    &kModelsCommand,
    &kInspectCommand,
    &kTensorCommand,
    &kTokenizeCommand,
    &kQuantizeCommand,
    &kForgeCommand,
    &kCompletionCommand,
    // clang-format on
};

int main(int argc, char** argv) {
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
  const Result<int> outcome = chosen();
  if (outcome.ok()) return *outcome;
  fmt::print(stderr, "lockstep: {}\n", outcome.error().message);
  return kWrongUse;
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  return lockstep::cli::main(argc, argv);
}
