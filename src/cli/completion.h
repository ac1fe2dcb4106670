// Completion in a shell. The scripts hand what was typed to the program itself, which answers from
// the declared options and the kinds of their values: what is checked and what is offered is one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace lockstep::cli {

// What `lockstep completion SHELL` prints.
std::string_view bash_completion();
std::string_view zsh_completion();

struct Candidate {
  std::string word;
  std::string help;
};

struct Completions {
  std::string value;  // what there is of the value; without "--name=" before it
  std::string paths;  // globs of files, as ValueKind has them; empty: no files or folders
  std::vector<Candidate> candidates;
};

// For the last of the words, which may be empty; the first is the program.
Completions complete(const CLI::App& root, const std::vector<std::string>& words);

// The words of the last command of a line as a shell reads it, quotes taken away. The last one is
// the one at the end, and empty where a space is there.
std::vector<std::string> shell_words(std::string_view line);

// How the scripts ask: `lockstep __complete bash LINE` or `lockstep __complete words WORD...`. The
// answer: a line with the globs, one with the value so far, then a line a candidate, its help
// behind a tab. For bash, those that begin with the value.
inline constexpr const char* kCompleteWord = "__complete";
Result<int> answer_completion(const CLI::App& root, const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
