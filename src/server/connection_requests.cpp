// How a connection reads requests.
#include <algorithm>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <fmt/format.h>

#include "base/text.h"
#include "server/connection.h"

namespace lockstep::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr size_t kBodyReadBytes = 32 << 10;
constexpr uint64_t kChunkHeads = 8;  // how many times larger they may make a body
constexpr int64_t kLingerBytes = 8 << 20;

std::string_view view(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

// Reads whatever comes: the start of a request, further ones while one is answered (to be parsed
// later), or the news that the client left.
void Connection::watch() {
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(kReadBytes), then(&Connection::on_watch));
}

void Connection::on_watch(const Code& failed, size_t bytes) {
  watching_ = false;
  if (state_ == State::kClosed) return;
  buffer_.commit(bytes);
  if (failed == asio::error::operation_aborted && state_ == State::kIdle) {
    if (buffer_.size() > 0) return begin_request();
    return watch();
  }
  if (failed == asio::error::eof && state_ == State::kAnswering) return on_end_of_requests();
  if (failed) return gone();
  switch (state_) {
    case State::kIdle:
      return begin_request();
    case State::kAnswering:
      if (buffer_.size() < kPipelineBytes) watch();  // else only a failed write tells that it left
      return;
    case State::kLingering:
      buffer_.consume(buffer_.size());
      lingered_bytes_ += static_cast<int64_t>(bytes);
      if (lingered_bytes_ > kLingerBytes) return close();
      return watch();
    case State::kReading:
    case State::kClosed:
      return;
  }
}

// The client sends no more: it left, or it has only closed its side and waits for the answer. What
// is sent to one that left comes back as a reset, so something harmless is.
void Connection::on_end_of_requests() {
  form_.keep_alive = false;
  const bool begun = entry.status != 0;
  if (!begun && form_.old_version) return gone();  // that has nothing harmless
  socket_.async_wait(asio::ip::tcp::socket::wait_error, then(&Connection::on_reset));
  out_ += begun ? chunk(":\n\n", form_) : "HTTP/1.1 100 Continue\r\n\r\n";
  write();
}

void Connection::on_reset(const Code& failed) {
  if (!failed && state_ == State::kAnswering) gone();
}

void Connection::begin_request() {
  // Some clients send an empty line after a body; it belongs to nothing (RFC 9112, 2.2).
  const auto* bytes = static_cast<const char*>(buffer_.data().data());
  const std::string_view read(bytes, buffer_.size());
  buffer_.consume(std::min(read.find_first_not_of("\r\n"), read.size()));
  if (buffer_.size() == 0) return watch();
  state_ = State::kReading;
  have_news();
  began_ = std::chrono::steady_clock::now();
  const std::string remote = entry.remote;
  entry = LogEntry{};
  entry.remote = remote;
  endpoint = "other";
  form_ = {.keep_alive = false};  // until it is known what the client speaks
  complete_ = of_job_ = false;
  late_ = false;
  body_read_ = 0;
  parser_.emplace();
  parser_->header_limit(transport_.header_bytes);
  parser_->body_limit(transport_.body_bytes);
  arm(transport_.request_time);
  http::async_read_header(socket_, buffer_, *parser_, then(&Connection::on_header));
}

void Connection::on_header(const Code& failed, size_t) {
  if (state_ != State::kReading) return;
  if (failed) return on_unreadable(failed);
  const auto& request = parser_->get();
  entry.method = view(request.method_string());
  entry.path = path_of(view(request.target()));
  form_.old_version = request.version() < 11;
  form_.head_only = request.method() == http::verb::head;
  if (const auto problem = refusal()) return refuse(*problem);
  form_.keep_alive = request.keep_alive();
  if (parser_->is_done()) return on_body();
  if (boost::beast::iequals(request[http::field::expect], "100-continue") && buffer_.size() == 0) {
    auto text = std::make_shared<std::string>("HTTP/1.1 100 Continue\r\n\r\n");
    asio::async_write(socket_, asio::buffer(*text),
                      [self = shared_from_this(), text](const Code&, size_t) {});
  }
  parser_->eager(true);
  read_body();
}

// By hand, since what has arrived is to be bounded before all of it is there.
void Connection::read_body() {
  if (buffer_.size() > 0) {
    Code failed;
    const size_t used = parser_->put(buffer_.data(), failed);
    buffer_.consume(used);
    body_read_ += used;
    if (failed && failed != http::error::need_more) return on_unreadable(failed);
    if (parser_->is_done()) return on_body();
  }
  if (body_read_ > kChunkHeads * transport_.body_bytes)
    return on_unreadable(http::error::body_limit);
  hold_body(parser_->get().body().size());
  transport_.bound_bodies();
  if (state_ != State::kReading) return;
  const size_t room = buffer_.max_size() - buffer_.size();
  if (room == 0) return on_unreadable(http::error::buffer_overflow);
  socket_.async_read_some(buffer_.prepare(std::min(room, kBodyReadBytes)),
                          then(&Connection::on_body_piece));
}

void Connection::on_body_piece(const Code& failed, size_t bytes) {
  if (state_ != State::kReading) return;
  if (failed) return on_unreadable(failed);
  buffer_.commit(bytes);
  read_body();
}

void Connection::hold_body(uint64_t bytes) {
  transport_.bodies_held += bytes - std::exchange(body_held_, bytes);
}

std::optional<ApiError> Connection::refusal() const {
  const auto& request = parser_->get();
  const auto bad = [](const char* message) { return ApiError{400, "BAD_REQUEST", message, ""}; };
  if (request.version() != 10 && request.version() != 11)
    return ApiError{505, "HTTP_VERSION", "expected HTTP/1.0 or HTTP/1.1", ""};
  // What two readers of a request could understand in two ways is refused (RFC 9112, 3.2 and 6.1).
  const size_t hosts = request.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && !form_.old_version))
    return bad(hosts == 0 ? "expected the header 'Host'" : "expected one header 'Host'");
  const size_t encodings = request.count(http::field::transfer_encoding);
  if (encodings > 1 ||
      (encodings == 1 &&
       (form_.old_version ||
        !boost::beast::iequals(request[http::field::transfer_encoding], "chunked"))))
    return bad("expected no Transfer-Encoding but 'chunked', and that with HTTP/1.1 only");
  const std::string_view host = view(request[http::field::host]);
  if (hosts == 1 && !transport_.hosts.allows(host))
    return ApiError{403, "HOST_NOT_ALLOWED",
                    fmt::format("the server is not known as '{}'; --allow-host makes it so",
                                printable(host, 100)),
                    ""};
  if (!transport_.api_key.empty() && entry.path != "/health" &&
      !bearer_matches(view(request[http::field::authorization]), transport_.api_key))
    return ApiError{401, "UNAUTHORIZED", "expected the header 'Authorization: Bearer KEY'", ""};
  if (request.method() == http::verb::post &&
      crosses_origins(view(request[http::field::origin]), host))
    return ApiError{403, "CROSS_ORIGIN", "pages of other origins may not use this server", ""};
  return std::nullopt;
}

void Connection::on_body() {
  begin_answer();
  const HttpRequest request{entry.method, entry.path, std::move(parser_->get().body())};
  parser_.reset();
  transport_.handle(request, shared_from_this());
  of_job_ = has_job();
  if (has_job() && !watching_ && buffer_.size() < kPipelineBytes) watch();
}

void Connection::on_unreadable(const Code& failed) {
  if (late_)
    return refuse({408, "REQUEST_TIMEOUT",
                   fmt::format("expected the whole request within {} seconds",
                               transport_.request_time.count() / 1000),
                   ""});
  if (failed == http::error::buffer_overflow)
    return refuse({431, "HEADERS_TOO_LARGE",
                   fmt::format("expected at most {} bytes of a chunk's extensions, and of trailers",
                               kBufferBytes),
                   ""});
  if (failed == http::error::header_limit)
    return refuse({431, "HEADERS_TOO_LARGE",
                   fmt::format("expected at most {} bytes of headers", transport_.header_bytes),
                   ""});
  if (failed == http::error::body_limit)
    return refuse({413, "BODY_TOO_LARGE",
                   fmt::format("expected a body of at most {} bytes", transport_.body_bytes), ""});
  if (failed == http::error::end_of_stream || failed == http::error::partial_message ||
      failed.category() != http::make_error_code(http::error::bad_method).category())
    return gone();
  refuse({400, "BAD_REQUEST", fmt::format("no valid HTTP request: {}", failed.message()), ""});
}

}  // namespace lockstep::server
