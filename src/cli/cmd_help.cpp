// lockstep help: the help of the program or of a command.
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/words.h"
#include "cli/wrong_use.h"

namespace lockstep::cli {
namespace help_command {

std::function<Result<int>()> declare(CLI::App& app) {
  auto path = std::make_shared<std::vector<std::string>>();
  add_values(app, "command", *path, kCommandName, "The command to tell about; none: the program");
  return [path, &app]() -> Result<int> {
    if (path->empty()) {  // a new one: of this one, CLI11 would tell about the command that runs
      fmt::print("{}", Program().app().help());
      return kDone;
    }
    const CLI::App* about = app.get_parent();
    for (const std::string& word : *path) {
      const CLI::App* next = nullptr;
      for (const CLI::App* sub : subcommands_of(*about))
        if (sub->get_name() == word) next = sub;
      if (next == nullptr) {
        if (subcommands_of(*about).empty())
          return error("help: '{}' has no commands of its own", about->get_name());
        return error("help: {}", no_command_text(*about, word));
      }
      about = next;
    }
    std::string above;  // as `lockstep COMMAND --help` shows it
    for (const CLI::App* app_above = about->get_parent(); app_above != nullptr;
         app_above = app_above->get_parent())
      above = app_above->get_name() + (above.empty() ? "" : " ") + above;
    fmt::print("{}", about->help(above));
    return kDone;
  };
}

}  // namespace help_command

const Command kHelpCommand = {
    "help",
    "Show this help, or that of a command",
    "  lockstep help\n"
    "  lockstep help compare\n"
    "  lockstep help models pull\n",
    help_command::declare,
};

}  // namespace lockstep::cli
