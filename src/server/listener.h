// Listens, accepts connections and waits for signals: what every server of ours has in common. All
// of it happens on one thread, that of run().
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/server.h"
#include "server/transport.h"

namespace lockstep::server {

class Listener {
 public:
  // `handle` answers requests; `on_signal` is told of SIGINT and SIGTERM.
  Listener(const ServerOptions& options, decltype(Transport::handle) handle,
           std::function<void(int signal)> on_signal);

  // The address, once it listens.
  Result<std::string> listen();
  // Until leave() is through.
  void run();
  // Clients get a moment to take what was written for them.
  void leave();

  boost::asio::io_context& network() { return network_; }
  const Transport& transport() const { return transport_; }
  Metrics& metrics() { return metrics_; }
  Log& log() { return log_; }

 private:
  void wait_for_signal();
  void accept();
  void leave_when_flushed();

  const ServerOptions& options_;
  const std::function<void(int signal)> on_signal_;
  Metrics metrics_;
  Log log_;
  Transport transport_;
  int waiting_ = 0;                     // for a signal
  int accepting_ = 0;                   // or pausing before it accepts
  boost::asio::io_context network_{1};  // after what its pending handlers use
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_, flush_;
  boost::asio::signal_set signals_;
  std::chrono::steady_clock::time_point flush_until_;
};

}  // namespace lockstep::server
