// The whole command line: every command, declared.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/command.h"

namespace lockstep::cli {

class Program {
 public:
  Program();
  Program(const Program&) = delete;

  const CLI::App& app() const { return app_; }

  // Parses, runs what was asked for, and tells on standard error what is wrong. Exit status.
  int run(const std::vector<std::string>& arguments);

 private:
  std::optional<int> parse(const std::vector<std::string>& arguments);

  CLI::App app_;
  std::function<Result<int>()> chosen_;
};

}  // namespace lockstep::cli
