// One client's connection: reads requests, one after another, and writes their answers.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/hosts.h"
#include "server/http_text.h"
#include "server/responder.h"

namespace lockstep::server {

class Connection;

// What all connections share.
struct Transport {
  // Answers a request, now or later.
  std::function<void(const HttpRequest&, const std::shared_ptr<Responder>&)> handle;
  Log& log;
  Metrics& metrics;
  std::string api_key;  // empty: none is asked for
  Hosts hosts = {};

  uint32_t header_bytes = 16 << 10;
  uint64_t body_bytes = 1 << 20;
  std::chrono::milliseconds idle_time{std::chrono::minutes(5)};      // between requests
  std::chrono::milliseconds request_time{std::chrono::seconds(10)};  // for one to arrive
  std::chrono::milliseconds stall_time{std::chrono::minutes(2)};     // without a byte taken
  std::chrono::milliseconds linger_time{std::chrono::seconds(2)};  // for a client to read the last

  std::set<Connection*> connections = {};
  bool answering() const;  // somebody waits for an answer, or for the rest of one
};

class Connection : public Responder, public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, Transport& transport);
  ~Connection() override;
  void start();
  bool answering() const { return state_ == State::kAnswering; }

  void respond(HttpResponse response) override;
  void begin_events() override;
  void send(std::string_view text) override;
  void end() override;

 private:
  using Code = boost::system::error_code;
  enum class State {
    kIdle,       // between requests
    kReading,    // a request has begun to arrive
    kAnswering,  // until the answer's last byte is on its way
    kLingering,  // nothing more will be said; the client may still read
    kClosed,
  };

  void watch();
  void on_watch(const Code& failed, size_t bytes);
  void on_end_of_requests();
  void begin_request();
  void on_header(const Code& failed);
  std::optional<ApiError> refusal() const;  // of what the header says
  void on_body(const Code& failed);
  void refuse(const ApiError& problem);  // and close
  void on_unreadable(const Code& failed);
  void begin_answer();
  void flush();
  void on_written(const Code& failed, size_t bytes);
  void finish_answer();
  void record();
  void linger();
  void gone();
  void close();
  void arm(std::chrono::milliseconds time);
  void on_time();

  boost::asio::ip::tcp::socket socket_;
  Transport& transport_;
  boost::asio::steady_timer timer_;  // one at a time: of the state
  State state_ = State::kIdle;

  boost::beast::flat_buffer buffer_;  // read and not yet parsed
  bool watching_ = false;             // a read is under way that no parser waits for
  bool late_ = false;                 // the request did not come in time
  int64_t lingered_bytes_ = 0;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;

  AnswerForm form_;
  bool complete_ = false;  // the handler has said everything
  std::string out_;        // to be written next
  std::string writing_;    // being written, from `written_` on
  size_t written_ = 0;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace lockstep::server
