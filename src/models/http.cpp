#include "models/http.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>

#include <curl/curl.h>

#include "base/lower.h"
#include "base/sha256.h"
#include "base/text.h"
#include "models/certificates.h"
#include "models/http_headers.h"

namespace lockstep::models {
namespace {

struct Exchange {
  const HttpRequest& request;
  PartFile& part;
  CURL* curl;
  int64_t total_bytes = 0;
  bool accepted = false;               // the answer's body goes into the part file
  bool restart = false;                // what is there is of another file
  std::optional<std::string> problem;  // ours, not curl's
};

long status_of(const Exchange& exchange) {
  long status = 0;
  curl_easy_getinfo(exchange.curl, CURLINFO_RESPONSE_CODE, &status);
  return status;
}

// Of the latest answer; redirects have answers too.
std::string header(const Exchange& exchange, const char* name) {
  constexpr int kLatest = -1;
  curl_header* found = nullptr;
  if (curl_easy_header(exchange.curl, name, 0, CURLH_HEADER, kLatest, &found) != CURLHE_OK)
    return {};
  return found->value;
}

int64_t content_length(const Exchange& exchange) {
  curl_off_t bytes = 0;
  curl_easy_getinfo(exchange.curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &bytes);
  return std::max<int64_t>(bytes, 0);
}

// What tells this version of the file from others.
std::string validator(const Exchange& exchange) {
  const std::string etag = header(exchange, "ETag");
  return etag.empty() ? header(exchange, "Last-Modified") : etag;
}

// The hub's redirects state the SHA-256 of the file behind them.
std::string stated_sha256(const Exchange& exchange) {
  std::string stated;
  for (int answer = 0;; ++answer) {
    curl_header* found = nullptr;
    const CURLHcode code =
        curl_easy_header(exchange.curl, "X-Linked-ETag", 0, CURLH_HEADER, answer, &found);
    if (code == CURLHE_MISSING) continue;
    if (code != CURLHE_OK) return stated;  // there was no further answer
    std::string hash = ascii_lower(found->value);
    std::erase(hash, '"');
    if (is_sha256(hash)) stated = std::move(hash);
  }
}

bool refuse(Exchange& exchange, std::string problem) {
  exchange.problem = std::move(problem);
  return false;
}

// Whether the part file's disk has room for what is still to come.
bool has_room(Exchange& exchange) {
  if (exchange.total_bytes <= exchange.part.size_bytes()) return true;
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::path(exchange.part.path()).parent_path();
  const auto space = std::filesystem::space(folder, failed);
  const int64_t needed = exchange.total_bytes - exchange.part.size_bytes();
  if (failed || space.available >= static_cast<uintmax_t>(needed)) return true;
  return refuse(exchange,
                fmt::format("{}: {}B are needed, {}B are free on that disk", folder.string(),
                            human(needed), human(static_cast<int64_t>(space.available))));
}

// Decides, once its headers are there, whether the answer's body belongs into the part file.
bool accept(Exchange& exchange) {
  const long status = status_of(exchange);
  PartFile& part = exchange.part;
  if (status == 206) {
    const auto range = parse_content_range(header(exchange, "Content-Range"));
    const PartOrigin& origin = part.origin();
    const bool goes_on = range && range->first == part.size_bytes() && part.size_bytes() > 0 &&
                         (origin.total_bytes == 0 || range->total == origin.total_bytes) &&
                         validator(exchange) == origin.validator;
    if (!goes_on) {
      if (part.size_bytes() == 0)
        return refuse(exchange, "the server sent a part of the file, which nobody asked for");
      exchange.restart = true;
      return false;
    }
    exchange.total_bytes = range->total;
  } else {
    exchange.total_bytes = content_length(exchange);
  }
  const int64_t expected = exchange.request.expected_bytes;
  if (expected > 0 && exchange.total_bytes > 0 && exchange.total_bytes != expected)
    return refuse(exchange, fmt::format("the server has a file of {} bytes, expected {}",
                                        exchange.total_bytes, expected));
  if (status == 200) {  // from the start, whether we asked so or not
    auto ready = part.restart();
    if (ready.ok())
      ready = part.set_origin({exchange.request.url, validator(exchange), exchange.total_bytes});
    if (!ready.ok()) return refuse(exchange, ready.error().message);
  }
  exchange.accepted = has_room(exchange);
  return exchange.accepted;
}

// Any other return value than `size` ends the transfer.
size_t on_body(char* data, size_t, size_t size, void* context) {
  auto& exchange = *static_cast<Exchange*>(context);
  const long status = status_of(exchange);
  if (status != 200 && status != 206) return 0;  // the body of an error is of no use
  if (!exchange.accepted && !accept(exchange)) return 0;
  const int64_t expected = exchange.request.expected_bytes;
  if (expected > 0 && exchange.part.size_bytes() + static_cast<int64_t>(size) > expected) {
    refuse(exchange, fmt::format("the server sends more than the expected {} bytes", expected));
    return 0;
  }
  const int64_t most = exchange.request.most_bytes;
  if (exchange.total_bytes == 0 && most > 0 &&
      exchange.part.size_bytes() + static_cast<int64_t>(size) > most) {
    refuse(exchange, fmt::format("the server does not say how large the file is, and sends more "
                                 "than {} bytes",
                                 most));
    return 0;
  }
  if (const auto added = exchange.part.add({data, size}); !added.ok()) {
    refuse(exchange, added.error().message);
    return 0;
  }
  return size;
}

int on_progress(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& exchange = *static_cast<Exchange*>(context);
  if (exchange.accepted && exchange.request.on_bytes)
    exchange.request.on_bytes(exchange.part.size_bytes(), exchange.total_bytes);
  return exchange.request.interrupted != nullptr && *exchange.request.interrupted ? 1 : 0;
}

bool may_pass(CURLcode code) {
  constexpr std::array kPassing = {
      CURLE_PARTIAL_FILE, CURLE_RECV_ERROR,      CURLE_SEND_ERROR, CURLE_OPERATION_TIMEDOUT,
      CURLE_GOT_NOTHING,  CURLE_COULDNT_CONNECT, CURLE_HTTP2,      CURLE_HTTP2_STREAM};
  return std::find(kPassing.begin(), kPassing.end(), code) != kPassing.end();
}

HttpOutcome judge_status(Exchange& exchange, long status) {
  const bool passing = status == 408 || status == 429 || (status >= 500 && status != 501);
  std::string problem = fmt::format("HTTP status {}{}", status, status_text(status));
  char* url = nullptr;
  curl_easy_getinfo(exchange.curl, CURLINFO_EFFECTIVE_URL, &url);
  if (url != nullptr && exchange.request.url != url)
    problem += fmt::format(" (after a redirect to {})", printable(url, 200));
  return {passing ? HttpEnding::kRetry : HttpEnding::kFailed, problem, {}};
}

HttpOutcome judge(Exchange& exchange, CURLcode code, const char* curl_text) {
  if (exchange.problem) return {HttpEnding::kFailed, *exchange.problem, {}};
  if (code == CURLE_ABORTED_BY_CALLBACK) return {HttpEnding::kFailed, "interrupted", {}};
  const long status = status_of(exchange);
  if (status == 416 && exchange.part.size_bytes() > 0) {
    // Nothing lies behind what we have: it is all, or of another file.
    const auto range = parse_content_range(header(exchange, "Content-Range"));
    if (range && range->total == exchange.part.size_bytes())
      return {HttpEnding::kWhole, {}, stated_sha256(exchange)};
    exchange.restart = true;
    return {};
  }
  // on_body ends answers that are no file, which libcurl calls an error of writing.
  const bool read = code == CURLE_OK || code == CURLE_WRITE_ERROR;
  if (status >= 400 || (status >= 300 && read)) return judge_status(exchange, status);
  if (code != CURLE_OK) {
    const std::string text = *curl_text != '\0' ? curl_text : curl_easy_strerror(code);
    return {may_pass(code) ? HttpEnding::kRetry : HttpEnding::kFailed, printable(text, 300), {}};
  }
  if (status != 200 && status != 206) return judge_status(exchange, status);
  if (!exchange.accepted && !accept(exchange))  // an answer without a body
    return {HttpEnding::kFailed, exchange.problem.value_or(""), {}};
  const int64_t whole = std::max(exchange.total_bytes, exchange.request.expected_bytes);
  if (exchange.part.size_bytes() < whole)
    return {HttpEnding::kRetry, "the connection ended before the file did", {}};
  return {HttpEnding::kWhole, {}, stated_sha256(exchange)};
}

HttpOutcome exchange_once(const HttpRequest& request, PartFile& part, bool& restart) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle(
      started == CURLE_OK ? curl_easy_init() : nullptr, curl_easy_cleanup);
  if (!handle) return {HttpEnding::kFailed, "libcurl does not start", {}};
  CURL* curl = handle.get();
  Exchange exchange{request, part, curl, 0, false, false, {}};
  std::array<char, CURL_ERROR_SIZE> text{};

  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  // Whoever began with https gets nothing that others on the way could have changed.
  const bool secure = ascii_lower(request.url).starts_with("https:");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  const std::string certificates = find_certificates(curl_version_info(CURLVERSION_NOW)->cainfo);
  if (!certificates.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, certificates.c_str());
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "lockstep/" LOCKSTEP_VERSION);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 30L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(kLeastBytesASecond));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_seconds));
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, text.data());
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);

  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> extra(nullptr, curl_slist_free_all);
  if (part.size_bytes() > 0) {
    // Not CURLOPT_RESUME_FROM: with that one, libcurl calls an answer that begins at the start an
    // error, while we want to take it.
    curl_easy_setopt(curl, CURLOPT_RANGE, fmt::format("{}-", part.size_bytes()).c_str());
    if (may_condition_range(part.origin().validator))
      extra.reset(curl_slist_append(nullptr, ("If-Range: " + part.origin().validator).c_str()));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, extra.get());
  }
  const CURLcode code = curl_easy_perform(curl);
  HttpOutcome outcome = judge(exchange, code, text.data());
  restart = exchange.restart;
  return outcome;
}

}  // namespace

HttpOutcome http_fetch(const HttpRequest& request, PartFile& part) {
  for (;;) {  // twice at most: an empty part file is never of another file
    bool restart = false;
    HttpOutcome outcome = exchange_once(request, part, restart);
    if (!restart) return outcome;
    if (const auto emptied = part.restart(); !emptied.ok())
      return {HttpEnding::kFailed, emptied.error().message, {}};
  }
}

}  // namespace lockstep::models
