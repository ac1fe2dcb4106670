// lockstep completion: print a script that completes this program's commands in a shell.
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/completion.h"
#include "cli/options.h"

namespace lockstep::cli {
namespace completion_command {

std::function<Result<int>()> declare(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  add_value(app, "shell", *shell, kShell, "Which shell: bash or zsh")->required();
  return [shell]() -> Result<int> {
    const std::string_view script = *shell == "bash" ? bash_completion() : zsh_completion();
    std::fwrite(script.data(), 1, script.size(), stdout);
    return kDone;
  };
}

}  // namespace completion_command

const Command kCompletionCommand = {
    "completion",
    "Print a completion script for bash or zsh",
    "  source <(lockstep completion bash)            # in ~/.bashrc\n"
    "  source <(lockstep completion zsh)             # in ~/.zshrc, after compinit\n"
    "  lockstep completion zsh > ~/.zsh/completions/_lockstep\n",
    completion_command::declare,
};

}  // namespace lockstep::cli
