#include "server/server.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/resource.h>

#include "server/api.h"
#include "server/connection.h"

namespace lockstep::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Code = boost::system::error_code;

constexpr size_t kSpareFiles = 64;   // for traces, logs and the model
constexpr size_t kSparePlaces = 16;  // of a client whose jobs have all others
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::milliseconds kFlushTime{std::chrono::seconds(2)};

// How many connections there can be: as many files as the system lets us have, less a few.
size_t raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
  constexpr rlim_t kWanted = 16'384;
  if (limit.rlim_cur < kWanted) {
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? kWanted : std::min(limit.rlim_max, kWanted);
    static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
    static_cast<void>(::getrlimit(RLIMIT_NOFILE, &limit));
  }
  const auto files = static_cast<size_t>(std::min(limit.rlim_cur, kWanted));
  return files > 2 * kSpareFiles ? files - kSpareFiles : files / 2;
}

class Server {
 public:
  Server(ServedModel& model, const ServerOptions& options)
      : options_(options),
        log_(options.log, options.log_prompts, metrics_),
        transport_{.handle = {}, .log = log_, .metrics = metrics_, .api_key = options.api_key},
        acceptor_(network_),
        pause_(network_),
        grace_(network_),
        signals_(network_, SIGINT, SIGTERM),
        worker_(network_, model, options.worker, metrics_),
        api_(worker_, model, metrics_, options.log_prompts, [this] { stop("/shutdown"); }) {
    transport_.request_time = options.request_time;
    transport_.most_connections = std::min(options.connections, raise_file_limit());
    transport_.handle = [this](const HttpRequest& request,
                               const std::shared_ptr<Responder>& responder) {
      // Nothing that a request holds should throw; if it does, only that request fails.
      try {
        api_.handle(request, responder);
      } catch (const std::exception& problem) {
        log_.note(fmt::format("internal error: {}", problem.what()));
        responder->respond(error_response({500, "INTERNAL", "an error of the server's own", ""}));
      }
    };
    api_.connections = [this] { return std::ssize(transport_.connections); };
    worker_.on_problem = [this](const std::string& message) { log_.note(message); };
  }

  Result<std::string> listen() {
    // Each job that waits has a connection, and none of these gives way.
    const size_t most = transport_.most_of_a_client();
    if (most <= kSparePlaces || static_cast<size_t>(options_.worker.queue) > most - kSparePlaces)
      return error(
          "--queue {}: there may be {} connections, half of them a client's: expected at most {} "
          "jobs that wait, or a larger --connections (as many as the system allows files)",
          options_.worker.queue, transport_.most_connections, most - std::min(most, kSparePlaces));
    Code failed;
    tcp::resolver resolver(network_);
    const auto found = resolver.resolve(options_.host, std::to_string(options_.port),
                                        tcp::resolver::passive, failed);
    if (failed || found.empty())
      return error("--host {}: no such address: {}", options_.host, failed.message());
    // A name such as localhost may stand for both; what most clients try is IPv4.
    const auto four = std::find_if(found.begin(), found.end(), [](const auto& entry) {
      return entry.endpoint().address().is_v4();
    });
    const tcp::endpoint endpoint = (four != found.end() ? four : found.begin())->endpoint();
    LS_TRY(transport_.hosts,
           Hosts::create(options_.host, endpoint.address().is_loopback(), options_.allowed_hosts));
    const auto refused = [&](const char* what) {
      return error("cannot {} {} port {}: {}", what, options_.host, options_.port,
                   failed.message());
    };
    acceptor_.open(endpoint.protocol(), failed);
    if (failed) return refused("open");
    acceptor_.set_option(tcp::acceptor::reuse_address(true), failed);
    acceptor_.bind(endpoint, failed);
    if (failed) return refused("bind to");
    acceptor_.listen(asio::socket_base::max_listen_connections, failed);
    if (failed) return refused("listen on");
    const tcp::endpoint bound = acceptor_.local_endpoint(failed);
    if (!endpoint.address().is_loopback() && options_.api_key.empty())
      log_.note("anyone who reaches this address may use the server: there is no --api-key-file");
    const std::string address = bound.address().to_string();
    return fmt::format("http://{}:{}", bound.address().is_v6() ? "[" + address + "]" : address,
                       bound.port());
  }

  void run() {
    wait_for_signal();
    accept();
    // Whatever a handler throws, the others go on.
    while (!network_.stopped()) {
      try {
        network_.run();
      } catch (const std::exception& problem) {
        log_.note(fmt::format("internal error: {}", problem.what()));
      }
    }
  }

 private:
  void wait_for_signal() {
    signals_.async_wait([this](const Code& failed, int signal) {
      if (failed) return;
      if (worker_.stopping() && signalled_) std::_Exit(128 + signal);  // a second one: at once
      signalled_ = true;
      wait_for_signal();
      stop(signal == SIGINT ? "SIGINT" : "SIGTERM");
    });
  }

  void accept() {
    acceptor_.async_accept([this](const Code& failed, tcp::socket socket) {
      if (failed == asio::error::operation_aborted) return;
      if (failed) {  // too many files, most likely: better after a moment
        transport_.close_one([](const Connection&) { return true; });
        pause_.expires_after(kAcceptPause);
        return pause_.async_wait([this](const Code& ended) {
          if (!ended) accept();
        });
      }
      Code left;
      const tcp::endpoint remote = socket.remote_endpoint(left);
      const std::string client = left ? "" : client_of(remote.address());
      if (!left && transport_.make_room(client))
        std::make_shared<Connection>(std::move(socket), client, transport_)->start();
      accept();
    });
  }

  void stop(const char* why) {
    if (worker_.stopping()) return;
    log_.note(fmt::format("stopping: {}", why));
    worker_.stop([this] { finish(); });
    grace_.expires_after(options_.grace);
    grace_.async_wait([this](const Code& ended) {
      if (!ended) worker_.end_active();
    });
  }

  // Nothing is computed any more. Clients get a moment to take what was written for them.
  void finish() {
    flush_until_ = std::chrono::steady_clock::now() + kFlushTime;
    leave_when_flushed();
  }

  void leave_when_flushed() {
    if (!transport_.answering() || std::chrono::steady_clock::now() >= flush_until_)
      return network_.stop();
    grace_.expires_after(std::chrono::milliseconds(5));
    grace_.async_wait([this](const Code& ended) {
      if (!ended) leave_when_flushed();
    });
  }

  const ServerOptions& options_;
  Metrics metrics_;
  Log log_;
  Transport transport_;
  asio::io_context network_{1};  // after what its pending handlers use
  tcp::acceptor acceptor_;
  asio::steady_timer pause_, grace_;
  asio::signal_set signals_;
  Worker worker_;
  Api api_;
  bool signalled_ = false;
  std::chrono::steady_clock::time_point flush_until_;
};

}  // namespace

Result<void> serve(ServedModel& model, const ServerOptions& options,
                   const std::function<void(const std::string& url)>& ready) {
  Server server(model, options);
  LS_TRY(const std::string url, server.listen());
  ready(url);
  server.run();
  return {};
}

}  // namespace lockstep::server
