#include "server/http_text.h"

#include <chrono>
#include <ctime>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/serializer.hpp>
#include <fmt/chrono.h>
#include <openssl/crypto.h>

#include "base/lower.h"
#include "base/sha256.h"

namespace lockstep::server {
namespace {

namespace http = boost::beast::http;
using Head = http::response<http::empty_body>;

// What every answer says first.
Head head_of(int status, const AnswerForm& form) {
  Head head;
  head.result(static_cast<unsigned>(status));
  if (status == 499) head.reason("Client Closed Request");
  head.set(http::field::server, "lockstep/" LOCKSTEP_VERSION);
  head.set(http::field::date,
           fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(std::time(nullptr))));
  head.set(http::field::cache_control, "no-store");
  head.set("X-Content-Type-Options", "nosniff");
  head.set(http::field::connection, form.keep_alive ? "keep-alive" : "close");
  return head;
}

std::string text_of(const Head& head) {
  http::response_serializer<http::empty_body> serializer(head);
  serializer.split(true);  // the head only
  std::string text;
  boost::system::error_code failed;
  serializer.next(failed, [&](boost::system::error_code&, const auto& buffers) {
    text = boost::beast::buffers_to_string(buffers);
  });
  return text;
}

std::string digest(std::string_view text) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.finish();
}

}  // namespace

HttpResponse json_response(int status, const nlohmann::ordered_json& json) {
  HttpResponse response;
  response.status = status;
  response.body = dump(json) + "\n";
  return response;
}

HttpResponse error_response(const ApiError& problem) {
  HttpResponse response = json_response(problem.status, {{"error", to_json(problem)}});
  if (problem.status == 503) response.headers.emplace_back("Retry-After", "1");
  if (problem.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

std::string whole_answer(const HttpResponse& response, const AnswerForm& form) {
  Head head = head_of(response.status, form);
  for (const auto& [name, value] : response.headers) head.insert(name, value);
  head.set(http::field::content_type, response.type);
  head.content_length(response.body.size());
  return form.head_only ? text_of(head) : text_of(head) + response.body;
}

std::string events_head(const AnswerForm& form) {
  Head head = head_of(200, form);
  head.set(http::field::content_type, "text/event-stream");
  head.chunked(!form.old_version);
  return text_of(head);
}

std::string chunk(std::string_view text, const AnswerForm& form) {
  if (form.old_version || text.empty()) return std::string(text);
  return boost::beast::buffers_to_string(http::make_chunk(boost::asio::buffer(text)));
}

std::string last_chunk(const AnswerForm& form) {
  return form.old_version ? "" : boost::beast::buffers_to_string(http::make_chunk_last());
}

std::string path_of(std::string_view target) {
  if (const size_t scheme = target.find("://"); scheme != target.npos && !target.starts_with('/')) {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == target.npos ? "/" : target.substr(slash);
  }
  return std::string(target.substr(0, target.find_first_of("?#")));
}

bool crosses_origins(std::string_view origin, std::string_view host) {
  if (origin.empty()) return false;
  const size_t scheme = origin.find("://");
  return scheme == origin.npos || ascii_lower(origin.substr(scheme + 3)) != ascii_lower(host);
}

bool bearer_matches(std::string_view authorization, std::string_view key) {
  constexpr std::string_view kScheme = "bearer ";
  const bool bearer = ascii_lower(authorization.substr(0, kScheme.size())) == kScheme;
  std::string_view given = bearer ? authorization.substr(kScheme.size()) : "";
  while (given.starts_with(' ')) given.remove_prefix(1);
  const std::string a = digest(given);
  const std::string b = digest(key);
  return (CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0) && bearer;
}

}  // namespace lockstep::server
