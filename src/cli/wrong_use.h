// What is wrong with a command line, in our words.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace lockstep::cli {

// What is wrong, what was expected, and where to read more.
std::string wrong_use_text(const CLI::App& root, const std::vector<std::string>& arguments,
                           const CLI::ParseError& problem);

// "no command 'comprae'; did you mean compare?" for a word that is no command of `app`.
std::string no_command_text(const CLI::App& app, const std::string& word);

}  // namespace lockstep::cli
