#include "server/connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

namespace lockstep::server {
namespace {

namespace asio = boost::asio;

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, std::string client, Transport& transport)
    : socket_(std::move(socket)),
      transport_(transport),
      client_(std::move(client)),
      timer_(socket_.get_executor()),
      buffer_(kBufferBytes) {
  size_t& mine = transport_.of_client[client_];
  place_ = transport_.connections.insert(transport_.connections.end(), this);
  ++mine;  // now nothing can fail any more
}

Connection::~Connection() {
  leave();
}

void Connection::leave() {
  if (place_ == transport_.connections.end()) return;
  hold_body(0);
  transport_.unread_held -= std::exchange(unread_held_, 0);
  transport_.connections.erase(std::exchange(place_, transport_.connections.end()));
  const auto mine = transport_.of_client.find(client_);
  if (--mine->second == 0) transport_.of_client.erase(mine);
}

void Connection::have_news() {
  auto& all = transport_.connections;
  if (place_ != all.end()) all.splice(all.end(), all, place_);
}

void Connection::start() try {
  Code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  const auto remote = socket_.remote_endpoint(ignored);
  entry.remote = ignored ? "?" : remote.address().to_string();
  arm(transport_.idle_time);
  watch();
} catch (...) {
  drop();
}

void Connection::begin_answer() {
  state_ = State::kAnswering;
  hold_body(0);
  have_news();
  timer_.cancel();
}

void Connection::refuse(const ApiError& problem) {
  form_.keep_alive = false;  // what follows in the stream cannot be trusted
  begin_answer();
  respond(error_response(problem));
}

void Connection::respond(HttpResponse response) {
  if (state_ != State::kAnswering || complete_) return;
  out_ += whole_answer(response, form_);
  entry.status = response.status;
  complete_ = true;
  flush();
}

void Connection::begin_events() {
  if (state_ != State::kAnswering || complete_) return;
  if (form_.old_version) form_.keep_alive = false;
  out_ += events_head(form_);
  entry.status = 200;
  flush();
}

void Connection::send(std::string_view text) {
  if (state_ != State::kAnswering || complete_) return;
  if (entry.status == 0) begin_events();
  out_ += chunk(text, form_);
  flush();
}

void Connection::hold_unread() {
  const uint64_t bytes = out_.size() + (writing_.size() - written_);
  transport_.unread_held += bytes - std::exchange(unread_held_, bytes);
}

void Connection::end() {
  if (state_ != State::kAnswering || complete_) return;
  out_ += last_chunk(form_);
  complete_ = true;
  if (out_.empty() && writing_.empty()) return finish_answer();
  flush();
}

void Connection::write() {
  if (!writing_.empty() || out_.empty()) return;
  writing_.swap(out_);
  written_ = 0;
  on_written({}, 0);
}

// For whoever answers: a write that cannot begin ends the connection, and the caller hears of it.
void Connection::flush() try {
  write();
  hold_unread();
  // Later, since whoever speaks here may be the very job that would end.
  if (transport_.has_too_much(*this))
    asio::post(socket_.get_executor(),
               [self = shared_from_this()] { self->transport_.bound_unread(*self); });
} catch (...) {
  on_gone = nullptr;
  drop();
  throw;
}

void Connection::on_written(const Code& failed, size_t bytes) {
  if (state_ != State::kAnswering) return;
  if (failed) return gone();
  written_ += bytes;
  hold_unread();
  if (bytes > 0) have_news();
  entry.bytes += static_cast<int64_t>(bytes);
  if (written_ < writing_.size()) {
    arm(transport_.stall_time);
    socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                             then(&Connection::on_written));
    return;
  }
  writing_.clear();
  written_ = 0;
  timer_.cancel();
  if (!out_.empty()) return write();
  if (complete_) finish_answer();
}

void Connection::record() {
  if (entry.status == 0) return;  // nothing was asked, or nothing could be answered
  using Milliseconds = std::chrono::duration<double, std::milli>;
  entry.milliseconds = Milliseconds(std::chrono::steady_clock::now() - began_).count();
  transport_.metrics.count_request(endpoint, entry.status);
  transport_.log.request(entry);
  entry.status = 0;
}

void Connection::finish_answer() {
  on_gone = nullptr;
  record();
  have_news();
  if (!form_.keep_alive) return linger();
  state_ = State::kIdle;
  arm(transport_.idle_time);
  if (!watching_) {
    if (buffer_.size() > 0) return begin_request();
    buffer_.shrink_to_fit();
    out_.shrink_to_fit();
    writing_.shrink_to_fit();
    return watch();
  }
  // The parser and the watch must not read side by side.
  if (buffer_.size() > 0) {
    Code ignored;
    socket_.cancel(ignored);
  }
}

void Connection::linger() {
  state_ = State::kLingering;
  arm(transport_.linger_time);
  Code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  // A socket that is closed with unread bytes resets the connection, and the answer may be lost.
  if (watching_) return;
  buffer_.consume(buffer_.size());
  watch();
}

void Connection::gone() {
  if (state_ == State::kAnswering) {
    if (entry.status == 0) entry.status = 499;
    if (const auto tell = std::exchange(on_gone, nullptr)) {
      state_ = State::kLingering;  // what the job says now goes nowhere
      tell();
    }
    record();
  }
  close();
}

void Connection::drop() noexcept {
  try {
    gone();
  } catch (...) {
    close();
  }
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  leave();
  on_gone = nullptr;
  timer_.cancel();
  Code ignored;
  socket_.close(ignored);
}

void Connection::arm(std::chrono::milliseconds time) {
  timer_.expires_after(time);
  timer_.async_wait(then(&Connection::on_time));
}

void Connection::on_time(const Code& failed) {
  if (failed || timer_.expiry() > std::chrono::steady_clock::now()) return;
  switch (state_) {
    case State::kReading: {
      late_ = true;
      Code ignored;
      socket_.cancel(ignored);  // the read that waits then says so
      return;
    }
    case State::kAnswering:
      return gone();
    case State::kIdle:
    case State::kLingering:
      return close();
    case State::kClosed:
      return;
  }
}

}  // namespace lockstep::server
