#include "server/dashboard.h"

#include <boost/asio/post.hpp>

#include "base/mapped_file.h"
#include "base/memory_reserve.h"
#include "base/no_throw.h"
#include "base/text.h"
#include "server/listener.h"
#include "suite/dashboard.h"
#include "suite/writers.h"

namespace lockstep::server {
namespace {

constexpr size_t kMostAsked = 16;  // requests that wait for the thread
constexpr std::chrono::milliseconds kPauseWithoutMemory{10};
constexpr size_t kMostReportBytes = size_t{64} << 20;  // what --html-limit bounds by 20 MB

// Scripts of the page itself may run. A report comes from a file: it may not act as this server.
HttpResponse page_response(std::string body, bool report) {
  HttpResponse response;
  response.type = "text/html; charset=utf-8";
  response.body = std::move(body);
  response.headers.emplace_back(
      "Content-Security-Policy",
      std::string("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'") +
          (report ? "; sandbox allow-scripts" : ""));
  response.headers.emplace_back("Cache-Control", "no-cache");
  return response;
}

HttpResponse no_such_page(const std::string& path) {
  return error_response(
      {404, "NOT_FOUND", fmt::format("no such page: {}", printable(path, 200)), ""});
}

HttpResponse report_response(const std::string& file) {
  const auto read = MappedFile::read(file);
  if (!read.ok()) return error_response({404, "NOT_FOUND", "the report is gone", ""});
  const auto bytes = read->bytes();
  if (bytes.size() > kMostReportBytes)
    return error_response({404, "NOT_FOUND", "the report is too large to be served", ""});
  return page_response({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, true);
}

}  // namespace

DashboardPages::DashboardPages(boost::asio::io_context& network, const std::string& folder,
                               std::string page)
    : network_(network), page_(std::move(page)), reader_(folder), thread_([this] { read(); }) {}

DashboardPages::~DashboardPages() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::string DashboardPages::link_of(const suite::Run& run, const suite::CaseResult& result) const {
  return fmt::format("{}/reports/{}/{}", page_ == "/" ? "" : page_, suite::link_to(run.file),
                     result.index);
}

bool DashboardPages::has(const std::string& path) const {
  return path == page_ || path.starts_with(page_ == "/" ? "/reports/" : page_ + "/reports/");
}

void DashboardPages::handle(const HttpRequest& request,
                            const std::shared_ptr<Responder>& responder) {
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = error_response(
        {405, "METHOD_NOT_ALLOWED",
         fmt::format("{}: found {}, expected GET", page_, printable(request.method, 40)), ""});
    response.headers.emplace_back("Allow", "GET, HEAD");
    return responder->respond(std::move(response));
  }
  {
    const std::lock_guard lock(mutex_);
    if (asked_.size() < kMostAsked) {
      asked_.push_back(std::make_shared<Asked>(Asked{request.path, responder, {}}));
      return wake_.notify_all();
    }
  }
  HttpResponse busy =
      error_response({503, "QUEUE_FULL", "too many ask for the dashboard at a time", ""});
  busy.headers.emplace_back("Retry-After", "1");
  responder->respond(std::move(busy));
}

HttpResponse DashboardPages::answer(const std::string& path) {
  const auto history = reader_.read();
  if (!history.ok())
    return error_response({500, "INTERNAL", printable(history.error().message, 400), ""});
  if (path == page_)
    return page_response(
        suite::dashboard_html(*history, [&](const suite::Run& run, const suite::CaseResult& result,
                                            const std::string&) { return link_of(run, result); }),
        false);
  // Only what the page links to.
  for (const auto& [of, file] : suite::report_files(*history))
    if (link_of(*of.first, *of.second) == path) return report_response(file);
  return no_such_page(path);
}

void DashboardPages::read() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return closed_ || !asked_.empty(); });
    if (closed_) return;
    const std::shared_ptr<Asked> asked = asked_.front();
    asked_.pop_front();
    lock.unlock();
    const auto done = no_throw([&]() -> Result<void> {
      asked->response = answer(asked->path);
      return {};
    });
    while (!no_throw([&]() -> Result<void> {
              // The responder is the network thread's, and ends there.
              boost::asio::post(network_, [asked, failed = !done.ok()] {
                const std::shared_ptr<Responder> responder = std::move(asked->responder);
                responder->respond(failed ? error_response(out_of_memory())
                                          : std::move(asked->response));
              });
              return {};
            }).ok())
      std::this_thread::sleep_for(kPauseWithoutMemory);
    lock.lock();
  }
}

Result<void> serve_dashboard(const std::string& folder, const ServerOptions& options,
                             const std::function<void(const std::string& url)>& ready) {
  return no_throw([&]() -> Result<void> {
    LS_TRY_VOID(suite::HistoryReader(folder).read());
    DashboardPages* pages = nullptr;
    Listener* leaving = nullptr;
    bool signalled = false;
    Listener listener(
        options,
        [&](const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
          responder->endpoint = "/";
          if (pages->has(request.path)) return pages->handle(request, responder);
          responder->respond(no_such_page(request.path));
        },
        [&](int signal) {
          if (std::exchange(signalled, true)) std::_Exit(128 + signal);
          leaving->leave();
        });
    DashboardPages served(listener.network(), folder, "/");
    pages = &served;
    leaving = &listener;
    LS_TRY(const std::string url, listener.listen());
    ready(url);
    listener.run();
    return {};
  });
}

}  // namespace lockstep::server
