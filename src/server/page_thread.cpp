#include "server/page_thread.h"

#include "base/mapped_file.h"
#include "base/text.h"

namespace lockstep::server {
namespace {

constexpr size_t kMostAsked = 16;                      // requests that wait for a thread
constexpr size_t kMostReportBytes = size_t{64} << 20;  // what --html-limit bounds by 20 MB

HttpResponse html_response(std::string body, const char* rights) {
  HttpResponse response;
  response.type = "text/html; charset=utf-8";
  response.body = std::move(body);
  response.headers.emplace_back(
      "Content-Security-Policy",
      std::string("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'") +
          rights);
  response.headers.emplace_back("Cache-Control", "no-cache");
  return response;
}

}  // namespace

void PageThread::answer(const std::shared_ptr<Responder>& responder,
                        std::function<HttpResponse()> make) {
  if (thread_.waiting() < kMostAsked) {
    const auto response = std::make_shared<HttpResponse>();
    return thread_.add(
        [response, make = std::move(make)] { *response = make(); },
        [response, responder](bool failed) {
          responder->respond(failed ? error_response(out_of_memory()) : std::move(*response));
        });
  }
  HttpResponse busy =
      error_response({503, "QUEUE_FULL", fmt::format("too many ask for {} at a time", what_), ""});
  busy.headers.emplace_back("Retry-After", "1");
  responder->respond(std::move(busy));
}

HttpResponse page_response(std::string body, bool talks) {
  return html_response(std::move(body), talks ? "; connect-src 'self'" : "");
}

HttpResponse report_response(const std::string& file) {
  const auto read = MappedFile::read(file);
  if (!read.ok()) return error_response({404, "NOT_FOUND", "the report is gone", ""});
  const auto bytes = read->bytes();
  if (bytes.size() > kMostReportBytes)
    return error_response({404, "NOT_FOUND", "the report is too large to be served", ""});
  return html_response({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                       "; sandbox allow-scripts");
}

HttpResponse method_not_allowed(const std::string& path, const std::string& found,
                                const std::string& expected) {
  HttpResponse response =
      error_response({405, "METHOD_NOT_ALLOWED",
                      fmt::format("{}: found {}, expected {}", printable(path, 200),
                                  printable(found, 40), expected),
                      ""});
  response.headers.emplace_back("Allow", expected == "GET" ? "GET, HEAD" : expected);
  return response;
}

std::optional<HttpResponse> unless_get(const std::string& path, const std::string& method) {
  if (method == "GET" || method == "HEAD") return std::nullopt;
  return method_not_allowed(path, method, "GET");
}

}  // namespace lockstep::server
