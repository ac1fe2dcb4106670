#include "server/http_text.h"

#include <chrono>
#include <ctime>

#include <boost/beast/http/status.hpp>
#include <fmt/chrono.h>
#include <openssl/crypto.h>

#include "base/lower.h"
#include "base/sha256.h"

namespace lockstep::server {
namespace {

std::string status_line(int status) {
  const auto known = boost::beast::http::int_to_status(static_cast<unsigned>(status));
  const auto reason = boost::beast::http::obsolete_reason(known);
  return fmt::format(
      "HTTP/1.1 {} {}\r\n", status,
      status == 499 ? "Client Closed Request" : std::string_view(reason.data(), reason.size()));
}

std::string common_headers(const AnswerForm& form) {
  return fmt::format(
      "Server: lockstep/{}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nConnection: {}\r\n",
      LOCKSTEP_VERSION, fmt::gmtime(std::time(nullptr)), form.keep_alive ? "keep-alive" : "close");
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
  std::string text = status_line(response.status) + common_headers(form);
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  text += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n\r\n", response.type,
                      response.body.size());
  return form.head_only ? text : text + response.body;
}

std::string events_head(const AnswerForm& form) {
  return status_line(200) + common_headers(form) + "Content-Type: text/event-stream\r\n" +
         (form.old_version ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n");
}

std::string chunk(std::string_view text, const AnswerForm& form) {
  if (form.old_version || text.empty()) return std::string(text);
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

std::string last_chunk(const AnswerForm& form) {
  return form.old_version ? "" : "0\r\n\r\n";
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
