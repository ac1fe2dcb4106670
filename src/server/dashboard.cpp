#include "server/dashboard.h"

#include "base/no_throw.h"
#include "base/text.h"
#include "server/listener.h"
#include "suite/dashboard.h"
#include "suite/writers.h"

namespace lockstep::server {
namespace {

HttpResponse no_such_page(const std::string& path) {
  return error_response(
      {404, "NOT_FOUND", fmt::format("no such page: {}", printable(path, 200)), ""});
}

}  // namespace

DashboardPages::DashboardPages(boost::asio::io_context& network, const std::string& folder,
                               std::string page)
    : page_(std::move(page)), reader_(folder), thread_(network, "the dashboard") {}

std::string DashboardPages::link_of(const suite::Run& run, const suite::CaseResult& result) const {
  return fmt::format("{}/reports/{}/{}", page_ == "/" ? "" : page_, suite::link_to(run.file),
                     result.index);
}

bool DashboardPages::has(const std::string& path) const {
  return path == page_ || path.starts_with(page_ == "/" ? "/reports/" : page_ + "/reports/");
}

void DashboardPages::handle(const HttpRequest& request,
                            const std::shared_ptr<Responder>& responder) {
  if (auto wrong = unless_get(page_, request.method)) return responder->respond(std::move(*wrong));
  thread_.answer(responder, [this, path = request.path] { return answer(path); });
}

HttpResponse DashboardPages::answer(const std::string& path) {
  const auto history = reader_.read();
  if (!history.ok())
    return error_response({500, "INTERNAL", printable(history.error().message, 400), ""});
  if (path == page_)
    return page_response(suite::dashboard_html(
                             *history,
                             [&](const suite::Run& run, const suite::CaseResult& result,
                                 const std::string&) { return link_of(run, result); },
                             page_ == "/" ? "" : "/"),
                         false);
  // Only what the page links to.
  for (const auto& [of, file] : suite::report_files(*history))
    if (link_of(*of.first, *of.second) == path) return report_response(file);
  return no_such_page(path);
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
