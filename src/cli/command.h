// A command of the program: how its flags are declared and what it does.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace lockstep::cli {

// Exit statuses of every command. Unreadable input and wrong use are Errors, which exit with 2.
inline constexpr int kDone = 0;
inline constexpr int kFailedCheck = 1;
inline constexpr int kWrongUse = 2;

struct Command {
  const char* name;
  const char* summary;   // one line for the table of commands
  const char* examples;  // shown at the end of --help
  // Declares the flags on `app` and returns what runs once they are parsed.
  std::function<Result<int>()> (*declare)(CLI::App& app);
};

// In the order of the help.
std::span<const Command* const> commands();
std::vector<std::string> names_of_commands();

// One a file: cmd_<verb>.cpp defines it, program.cpp has the table.
extern const Command kRunCommand;
extern const Command kServeCommand;
extern const Command kModelsCommand;
extern const Command kInspectCommand;
extern const Command kTensorCommand;
extern const Command kTokenizeCommand;
extern const Command kQuantizeCommand;
extern const Command kAuditCommand;
extern const Command kQualityCommand;
extern const Command kImatrixCommand;
extern const Command kConvertCommand;
extern const Command kForgeCommand;
extern const Command kCompareCommand;
extern const Command kCheckCommand;
extern const Command kDashboardCommand;
extern const Command kDoctorCommand;
extern const Command kCaptureCommand;
extern const Command kScanCommand;
extern const Command kImportCommand;
extern const Command kExportCommand;
extern const Command kBenchCommand;
extern const Command kDemoCommand;
extern const Command kCompletionCommand;
extern const Command kHelpCommand;

}  // namespace lockstep::cli
