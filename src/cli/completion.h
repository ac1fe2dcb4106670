// Shell scripts that complete commands, options, their values and files, made from the declared
// flags: what a command declares is completed without further ado.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace lockstep::cli {

// `root` holds the commands as subcommands.
std::string bash_completion(const CLI::App& root);
std::string zsh_completion(const CLI::App& root);

}  // namespace lockstep::cli
