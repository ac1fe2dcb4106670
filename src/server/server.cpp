#include "server/server.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <malloc.h>

#include "base/memory_reserve.h"
#include "base/no_throw.h"
#include "server/api.h"
#include "server/dashboard.h"
#include "server/listener.h"

namespace lockstep::server {
namespace {

constexpr const char* kDashboardPath = "/dashboard";
constexpr size_t kSparePlaces = 16;  // of a client whose jobs have all others

class Server {
 public:
  Server(ServedModel& model, const ServerOptions& options)
      : options_(options),
        listener_(
            options,
            [this](const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
              if (dashboard_ && dashboard_->has(request.path)) {
                responder->endpoint = kDashboardPath;
                return dashboard_->handle(request, responder);
              }
              api_.handle(request, responder);
            },
            [this](int signal) { signal_came(signal); }),
        grace_(listener_.network()),
        worker_(listener_.network(), model, options.worker, listener_.metrics()),
        judgements_(listener_.network(), worker_, model, listener_.metrics(), options.judge),
        api_(worker_, judgements_, model, listener_.metrics(), options,
             [this] { stop("/shutdown"); }) {
    if (!options.history.empty())
      dashboard_.emplace(listener_.network(), options.history, kDashboardPath);
    api_.connections = [this] { return std::ssize(listener_.transport().connections); };
    worker_.on_end = [this](const Job& job, bool ended) { judgements_.keep(job, ended); };
    worker_.on_problem = [this](const std::string& message) { listener_.log().note(message); };
  }

  Result<std::string> listen() {
    // Each job that waits has a connection, and none of these gives way.
    const Transport& transport = listener_.transport();
    const size_t most = transport.most_of_a_client();
    if (most <= kSparePlaces || static_cast<size_t>(options_.worker.queue) > most - kSparePlaces)
      return error(
          "--queue {}: there may be {} connections, half of them a client's: expected at most {} "
          "jobs that wait, or a larger --connections (as many as the system allows files)",
          options_.worker.queue, transport.most_connections, most - std::min(most, kSparePlaces));
    return listener_.listen();
  }

  void run() { listener_.run(); }

 private:
  void signal_came(int signal) {
    if (worker_.stopping() && signalled_) std::_Exit(128 + signal);  // a second one: at once
    signalled_ = true;
    stop(signal == SIGINT ? "SIGINT" : "SIGTERM");
  }

  void stop(const char* why) {
    if (worker_.stopping()) return;
    grace_.expires_after(options_.grace);
    grace_.async_wait([this](const boost::system::error_code& ended) {
      if (!ended) worker_.end_active();
    });
    judgements_.stop();
    // Nothing is computed any more.
    worker_.stop([this] {
      grace_.cancel();
      listener_.leave();
    });
    listener_.log().note(fmt::format("stopping: {}", why));
  }

  const ServerOptions& options_;
  Listener listener_;
  boost::asio::steady_timer grace_;
  Worker worker_;
  Judgements judgements_;
  Api api_;
  std::optional<DashboardPages> dashboard_;
  bool signalled_ = false;
};

}  // namespace

Result<void> serve(ServedModel& model, const ServerOptions& options,
                   const std::function<void(const std::string& url)>& ready) {
  // What one thread gives back, others can have: there is one heap for all, and large pieces go
  // back to the system.
  static_cast<void>(::mallopt(M_ARENA_MAX, 1));
  static_cast<void>(::mallopt(M_MMAP_THRESHOLD, 256 << 10));
  favour_this_thread();
  if (!hold_memory_reserve()) return error("{}", kNoMemoryMessage);
  return no_throw([&]() -> Result<void> {
    Server server(model, options);
    LS_TRY(const std::string url, server.listen());
    ready(url);
    server.run();
    return {};
  });
}

}  // namespace lockstep::server
