// Pages that are made of files, and answers with pages.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/responder.h"
#include "server/side_thread.h"

namespace lockstep::server {

class PageThread {
 public:
  // `what` it gives out, for the message where too many ask: "the dashboard".
  PageThread(boost::asio::io_context& network, std::string what)
      : what_(std::move(what)), thread_(network) {}

  // Answers later, on the network thread. `make` runs on another one.
  void answer(const std::shared_ptr<Responder>& responder, std::function<HttpResponse()> make);

 private:
  const std::string what_;
  SideThread thread_;
};

// A page of ours. Its own scripts may run, and where it `talks`, ask this server.
HttpResponse page_response(std::string body, bool talks);

// A report comes from a file: its scripts run, but may not act as this server.
HttpResponse report_response(const std::string& file);

// Where a path has only GET. Nothing: the request has that method.
std::optional<HttpResponse> unless_get(const std::string& path, const std::string& method);

HttpResponse method_not_allowed(const std::string& path, const std::string& found,
                                const std::string& expected);

}  // namespace lockstep::server
