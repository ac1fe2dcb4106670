#include "server/listener.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <sys/resource.h>

#include "base/no_throw.h"
#include "server/connection.h"

namespace lockstep::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Code = boost::system::error_code;

constexpr size_t kSpareFiles = 64;  // for traces, logs and the model
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::milliseconds kFailurePause{10};
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

// Counts handlers that somebody will call. One that is never called, since there was no memory to
// get that far, is destroyed, and counts no more.
class Pending {
 public:
  explicit Pending(int& count) : count_(&++count) {}
  Pending(Pending&& from) noexcept : count_(std::exchange(from.count_, nullptr)) {}
  ~Pending() {
    if (count_ != nullptr) --*count_;
  }

 private:
  int* count_;
};

}  // namespace

Listener::Listener(const ServerOptions& options, decltype(Transport::handle) handle,
                   std::function<void(int signal)> on_signal)
    : options_(options),
      on_signal_(std::move(on_signal)),
      log_(options.log, metrics_),
      transport_{.handle = {}, .log = log_, .metrics = metrics_, .api_key = options.api_key},
      acceptor_(network_),
      pause_(network_),
      flush_(network_),
      signals_(network_, SIGINT, SIGTERM) {
  transport_.request_time = options.request_time;
  transport_.most_connections = std::min(options.connections, raise_file_limit());
  transport_.handle = [this, handle = std::move(handle)](
                          const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
    // Nothing but memory should be missing; whatever it is, only that request fails.
    try {
      handle(request, responder);
    } catch (const std::bad_alloc&) {
      responder->respond(error_response(out_of_memory()));
    } catch (const std::exception& problem) {
      log_.note(problem.what());
      responder->respond(error_response({500, "INTERNAL", "an error of the server's own", ""}));
    }
  };
}

Result<std::string> Listener::listen() {
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
    return error("cannot {} {} port {}: {}", what, options_.host, options_.port, failed.message());
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

void Listener::run() {
  const auto busy = asio::make_work_guard(network_);
  bool failed = false;
  // Whatever a handler throws, the others go on, and what it did not begin again begins here.
  while (!network_.stopped()) try {
      if (std::exchange(failed, false)) network_.run_for(kFailurePause);
      if (waiting_ == 0) wait_for_signal();
      if (accepting_ == 0) accept();
      network_.run();
    } catch (...) {
      failed = true;
      log_.note(caught_error().message);
    }
}

void Listener::wait_for_signal() {
  signals_.async_wait([this, pending = Pending(waiting_)](const Code& failed, int signal) {
    if (failed) return;
    on_signal_(signal);
    wait_for_signal();
  });
}

void Listener::accept() {
  acceptor_.async_accept(
      [this, pending = Pending(accepting_)](const Code& failed, tcp::socket socket) {
        if (failed) {  // too many files, most likely: better after a moment
          transport_.close_one([](const Connection&) { return true; });
          pause_.expires_after(kAcceptPause);
          return pause_.async_wait([this, paused = Pending(accepting_)](const Code&) { accept(); });
        }
        Code left;
        const tcp::endpoint remote = socket.remote_endpoint(left);
        const std::string client = left ? "" : client_of(remote.address());
        if (!left && transport_.make_room(client))
          std::make_shared<Connection>(std::move(socket), client, transport_)->start();
        accept();
      });
}

void Listener::leave() {
  flush_until_ = std::chrono::steady_clock::now() + kFlushTime;
  leave_when_flushed();
}

void Listener::leave_when_flushed() try {
  if (!transport_.answering() || std::chrono::steady_clock::now() >= flush_until_)
    return network_.stop();
  flush_.expires_after(std::chrono::milliseconds(5));
  flush_.async_wait([this](const Code& ended) {
    if (!ended) leave_when_flushed();
  });
} catch (...) {
  network_.stop();
}

}  // namespace lockstep::server
