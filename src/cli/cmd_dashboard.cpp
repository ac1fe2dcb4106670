// lockstep dashboard: the runs of a history as a page.
#include <cstdio>
#include <memory>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "suite/dashboard.h"

namespace lockstep::cli {
namespace dashboard_command {

struct Flags {
  std::string folder;
  std::string out;
};

Result<int> run(const Flags& flags) {
  suite::HistoryReader reader(flags.folder);
  LS_TRY(const suite::History history, reader.read());
  LS_TRY_VOID(suite::write_dashboard(history, flags.out));
  fmt::print("{}/index.html: {} runs{}\n", printable(flags.out), history.runs.size(),
             history.unreadable.empty()
                 ? ""
                 : fmt::format(", {} files that cannot be read", history.unreadable.size()));
  return kDone;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "history", flags->folder, kHistory, "Folder that check --history wrote")
      ->required();
  add_value(app, "--out", flags->out, kNewFolder, "Write the page into this folder")->required();
  return [flags] { return run(*flags); };
}

}  // namespace dashboard_command

const Command kDashboardCommand = {
    "dashboard",
    "Show the runs of check --history: verdicts, changes, trends",
    "  lockstep check suite.toml --history runs --out failed/today\n"
    "  lockstep dashboard runs --out public\n",
    dashboard_command::declare,
};

}  // namespace lockstep::cli
