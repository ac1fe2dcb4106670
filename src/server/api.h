// What the worker offers over HTTP: a table of endpoints.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "server/judgements.h"
#include "server/responder.h"
#include "server/server.h"

namespace lockstep::server {

class Api {
 public:
  Api(Worker& worker, Judgements& judgements, const ServedModel& model, Metrics& metrics,
      const ServerOptions& options, std::function<void()> shutdown)
      : worker_(worker),
        judgements_(judgements),
        model_(model),
        metrics_(metrics),
        log_prompts_(options.log_prompts),
        has_dashboard_(!options.history.empty()),
        shutdown_(std::move(shutdown)) {}

  void handle(const HttpRequest& request, const std::shared_ptr<Responder>& responder);

  std::function<int64_t()> connections = [] { return int64_t{0}; };

 private:
  using Answer = std::shared_ptr<Responder>;
  struct Route;
  static const Route kRoutes[];

  void page(const HttpRequest& request, const Answer& answer);
  void health(const HttpRequest& request, const Answer& answer);
  void metrics(const HttpRequest& request, const Answer& answer);
  void execute(const HttpRequest& request, const Answer& answer);
  void cancel(const HttpRequest& request, const Answer& answer);
  void judge(const HttpRequest& request, const Answer& answer);
  void judgement(const HttpRequest& request, const Answer& answer);
  void shutdown(const HttpRequest& request, const Answer& answer);
  void models(const HttpRequest& request, const Answer& answer);
  void one_model(const HttpRequest& request, const Answer& answer);
  void completion(const HttpRequest& request, const Answer& answer);
  void chat(const HttpRequest& request, const Answer& answer);

  void submit(JobFields fields, const Answer& answer, std::shared_ptr<JobListener> listener);
  nlohmann::ordered_json model_json() const;
  double uptime_seconds() const;

  Worker& worker_;
  Judgements& judgements_;
  const ServedModel& model_;
  Metrics& metrics_;
  const bool log_prompts_;
  const bool has_dashboard_;
  const std::function<void()> shutdown_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  const std::chrono::system_clock::time_point created_ = std::chrono::system_clock::now();
};

}  // namespace lockstep::server
