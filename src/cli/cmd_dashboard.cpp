// lockstep dashboard: the runs of a history as a page.
#include <csignal>
#include <cstdio>
#include <memory>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "server/dashboard.h"
#include "suite/dashboard.h"

namespace lockstep::cli {
namespace dashboard_command {

struct Flags {
  std::string folder;
  std::string out;
  server::ServerOptions server;
};

Result<int> run(Flags& flags) {
  if (flags.out.empty()) {
    std::signal(SIGPIPE, SIG_IGN);
    LS_TRY_VOID(server::serve_dashboard(flags.folder, flags.server, [](const std::string& url) {
      fmt::print("lockstep shows the dashboard at {}\n", url);
      std::fflush(stdout);
    }));
    return kDone;
  }
  suite::HistoryReader reader(flags.folder);
  LS_TRY(const suite::History history, reader.read());
  LS_TRY_VOID(suite::write_dashboard(history, flags.out));
  const auto counted = [](size_t count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  fmt::print("{}/index.html: {}{}\n", printable(flags.out), counted(history.runs.size(), "run"),
             history.unreadable.empty()
                 ? ""
                 : fmt::format(", unreadable: {}", counted(history.unreadable.size(), "file")));
  return kDone;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "history", flags->folder, kHistory, "Folder that check --history wrote")
      ->required();
  auto* out = add_value(app, "--out", flags->out, kNewFolder,
                        "Write the page into this folder, for any web server or as files of CI; "
                        "without it, serve the page");
  add_value(app, "--host", flags->server.host, kText, "Address to serve on")
      ->default_str(flags->server.host)
      ->excludes(out);
  flags->server.port = 0;
  auto* port = add_number(app, "--port", flags->server.port, {0, 65535},
                          "Port to serve on; 0: any that is free");
  show_default(port, flags->server.port);
  port->excludes(out);
  return [flags] { return run(*flags); };
}

}  // namespace dashboard_command

const Command kDashboardCommand = {
    "dashboard",
    "Show the runs of check --history: verdicts, changes, trends",
    "  lockstep check suite.toml --history runs --out failed/today\n"
    "  lockstep dashboard runs\n"
    "  lockstep dashboard runs --out public\n",
    dashboard_command::declare,
};

}  // namespace lockstep::cli
