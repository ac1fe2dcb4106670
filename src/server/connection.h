// One client's connection: reads requests, one after another, and writes their answers.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http_text.h"
#include "server/transport.h"

namespace lockstep::server {

class Connection : public Responder, public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::string client, Transport& transport);
  ~Connection() override;
  void start();

  const std::string& client() const { return client_; }
  bool answering() const { return state_ == State::kAnswering; }
  bool has_job() const { return answering() && !complete_; }
  // A job's answer that is not yet all on its way, be the job over or not.
  bool has_jobs_answer() const { return answering() && of_job_; }
  bool silent() const { return state_ == State::kIdle || state_ == State::kLingering; }
  uint64_t body_held() const { return body_held_; }
  uint64_t unread_held() const { return unread_held_; }

  void respond(HttpResponse response) override;
  void begin_events() override;
  void send(std::string_view text) override;
  void end() override;
  void drop() noexcept override;

 private:
  using Code = boost::system::error_code;
  enum class State {
    kIdle,       // between requests
    kReading,    // a request has begun to arrive
    kAnswering,  // until the answer's last byte is on its way
    kLingering,  // nothing more will be said; the client may still read
    kClosed,
  };

  static constexpr size_t kReadBytes = 4 << 10;
  static constexpr size_t kPipelineBytes = 64 << 10;  // of further requests, while one is answered
  // Nothing that is read is kept beyond this: headers, heads of chunks with their extensions,
  // trailers.
  static constexpr size_t kBufferBytes = kPipelineBytes + kReadBytes;

  // A handler of the network's news. What it throws ends this connection, and no other.
  template <class... News>
  auto then(void (Connection::*step)(News...)) {
    return [self = shared_from_this(), step](News... news) noexcept {
      try {
        (self.get()->*step)(news...);
      } catch (...) {
        self->drop();
      }
    };
  }

  // connection_requests.cpp
  void watch();
  void on_watch(const Code& failed, size_t bytes);
  void on_end_of_requests();
  void on_reset(const Code& failed);
  void begin_request();
  void on_header(const Code& failed, size_t bytes);
  std::optional<ApiError> refusal() const;  // of what the header says
  void read_body();
  void on_body_piece(const Code& failed, size_t bytes);
  void hold_body(uint64_t bytes);
  void on_body();
  void on_unreadable(const Code& failed);

  void refuse(const ApiError& problem);  // and close
  void begin_answer();
  void write();
  void flush();
  void hold_unread();
  void on_written(const Code& failed, size_t bytes);
  void finish_answer();
  void record();
  void linger();
  void gone();
  void close();
  void leave();      // the others' list
  void have_news();  // goes to the end of it
  void arm(std::chrono::milliseconds time);
  void on_time(const Code& failed);

  boost::asio::ip::tcp::socket socket_;
  Transport& transport_;
  const std::string client_;
  std::list<Connection*>::iterator place_;  // end(): none any more
  boost::asio::steady_timer timer_;         // one at a time: of the state
  State state_ = State::kIdle;

  boost::beast::flat_buffer buffer_;  // read and not yet parsed
  uint64_t unread_held_ = 0;          // of the answer
  uint64_t body_held_ = 0;            // that has arrived, of one that is not whole yet
  uint64_t body_read_ = 0;            // the same with its chunks' heads
  bool watching_ = false;             // a read is under way that no parser waits for
  bool late_ = false;                 // the request did not come in time
  int64_t lingered_bytes_ = 0;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;

  AnswerForm form_;
  bool complete_ = false;  // the handler has said everything
  bool of_job_ = false;    // the handler left the answer to a job
  std::string out_;        // to be written next
  std::string writing_;    // being written, from `written_` on
  size_t written_ = 0;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace lockstep::server
