// Requests as bytes: the HTTP parser with the worker's limits, the target's path, and the JSON of
// each endpoint. What is accepted has what the engine needs; what is refused says why.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/check.h"
#include "base/text.h"
#include "server/http_text.h"
#include "server/job_fields.h"

namespace {

using namespace lockstep::server;
namespace http = boost::beast::http;

void check(const std::optional<ApiError>& problem, const JobFields& fields) {
  if (problem) {
    LS_CHECK(problem->status == 400 && !problem->code.empty() && !problem->message.empty());
    LS_CHECK(nlohmann::json::parse(dump(to_json(*problem))).is_object());
    return;
  }
  LS_CHECK(!fields.prompt.empty() || !fields.prompt_tokens.empty() || fields.messages.is_array());
  LS_CHECK(fields.max_tokens >= 1 && fields.logprobs <= kMostLogprobs);
  LS_CHECK(lockstep::engine::check(fields.sampling).ok());
  LS_CHECK(lockstep::find_invalid_utf8(fields.prompt) == std::string::npos);
  for (const std::string& stop : fields.stops) LS_CHECK(!stop.empty());
}

void read_body(std::string_view body) {
  JobFields execute, completion, chat;
  check(read_execute(body, execute), execute);
  check(read_completion(body, completion), completion);
  check(read_chat(body, chat), chat);
  std::string id;
  if (!read_job_id(body, id)) LS_CHECK(!id.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  // The first byte says how the bytes arrive: the body alone, or a request in pieces of some size.
  if (data[0] == 'b') {
    read_body(text);
    return 0;
  }
  http::request_parser<http::string_body> parser;
  parser.header_limit(16 << 10);
  parser.body_limit(1 << 20);
  parser.eager(true);
  const size_t piece = size_t{data[0]} + 1;
  boost::system::error_code failed;
  size_t begin = 0, end = 0;
  while (!parser.is_done() && !failed) {
    if (end == text.size()) break;
    end = std::min(text.size(), end + piece);
    begin += parser.put(boost::asio::buffer(text.data() + begin, end - begin), failed);
    if (failed == http::error::need_more) failed = {};
  }
  if (failed || !parser.is_done()) return 0;
  const auto& request = parser.get();
  const std::string path = path_of({request.target().data(), request.target().size()});
  LS_CHECK(path.find('?') == std::string::npos);
  const auto header = [&](http::field field) {
    return std::string_view(request[field].data(), request[field].size());
  };
  static_cast<void>(crosses_origins(header(http::field::origin), header(http::field::host)));
  static_cast<void>(bearer_matches(header(http::field::authorization), "key"));
  read_body(request.body());
  return 0;
}
