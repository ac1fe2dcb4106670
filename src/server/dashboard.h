// The runs of a history over HTTP: the page, and the reports that it links to.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "server/page_thread.h"
#include "server/server.h"
#include "suite/history.h"

namespace lockstep::server {

class DashboardPages {
 public:
  // `page`: the path of the page; its reports lie below it.
  DashboardPages(boost::asio::io_context& network, const std::string& folder, std::string page);

  bool has(const std::string& path) const;
  // Answers later, on the network thread.
  void handle(const HttpRequest& request, const std::shared_ptr<Responder>& responder);

 private:
  HttpResponse answer(const std::string& path);
  std::string link_of(const suite::Run& run, const suite::CaseResult& result) const;

  const std::string page_;
  suite::HistoryReader reader_;  // the thread's
  PageThread thread_;            // last: it starts when all else is there
};

// Serves the page of a folder's runs at "/", until a signal ends it.
Result<void> serve_dashboard(const std::string& folder, const ServerOptions& options,
                             const std::function<void(const std::string& url)>& ready);

}  // namespace lockstep::server
