// lockstep completion: print a script that completes this program's commands in a shell.
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/completion.h"

namespace lockstep::cli {
namespace completion_command {

std::function<Result<int>()> declare(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "Which shell")->required()->check(CLI::IsMember({"bash", "zsh"}));
  return [shell, &app]() -> Result<int> {
    const CLI::App& root = *app.get_parent();
    const std::string script = *shell == "bash" ? bash_completion(root) : zsh_completion(root);
    std::fwrite(script.data(), 1, script.size(), stdout);
    return kDone;
  };
}

}  // namespace completion_command

const Command kCompletionCommand = {
    "completion",
    "Print a completion script for bash or zsh",
    "  source <(lockstep completion bash)\n"
    "  lockstep completion zsh > ~/.zsh/completions/_lockstep\n",
    completion_command::declare,
};

}  // namespace lockstep::cli
