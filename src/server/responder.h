// How a request is answered, whatever carries it. On the network thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/log.h"

namespace lockstep::server {

struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
};

HttpResponse json_response(int status, const nlohmann::ordered_json& json);
HttpResponse error_response(const ApiError& problem);

// One answer: respond() once, or begin_events(), send() any number of times and end(). What is sent
// after the client went away goes nowhere.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void respond(HttpResponse response) = 0;
  virtual void begin_events() = 0;
  virtual void send(std::string_view text) = 0;
  virtual void end() = 0;
  virtual void drop() noexcept = 0;  // the connection, as if the client had left

  std::function<void()> on_gone;   // the client went away before the end
  std::string endpoint = "other";  // for the metrics: a path that is known
  LogEntry entry;
};

}  // namespace lockstep::server
