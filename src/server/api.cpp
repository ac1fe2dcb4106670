#include "server/api.h"

#include "base/memory.h"
#include "base/memory_reserve.h"
#include "base/text.h"
#include "server/replies.h"
#include "server/web_page.h"

namespace lockstep::server {
struct Api::Route {
  const char* method;
  const char* path;
  void (Api::*handle)(const HttpRequest&, const Answer&);
  bool makes_job = false;
};

const Api::Route Api::kRoutes[] = {
    {"GET", "/", &Api::page},
    {"GET", "/health", &Api::health},
    {"GET", "/metrics", &Api::metrics},
    {"POST", "/execute", &Api::execute, true},
    {"POST", "/cancel", &Api::cancel},
    {"POST", "/judge", &Api::judge, true},
    {"POST", "/shutdown", &Api::shutdown},
    {"GET", "/v1/models", &Api::models},
    {"POST", "/v1/completions", &Api::completion, true},
    {"POST", "/v1/chat/completions", &Api::chat, true},
};

void Api::handle(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  for (const Route& route : kRoutes) {
    if (request.path != route.path) continue;
    responder->endpoint = route.path;
    if (method == route.method && route.makes_job && !hold_memory_reserve())
      return responder->respond(error_response(out_of_memory()));
    if (method == route.method) return (this->*route.handle)(request, responder);
    return responder->respond(method_not_allowed(route.path, request.method, route.method));
  }
  constexpr std::string_view kModels = "/v1/models/";
  if (request.path.starts_with(kModels) && method == "GET") return one_model(request, responder);
  constexpr std::string_view kJudgements = "/judge/";
  if (request.path.starts_with(kJudgements)) return judgement(request, responder);
  responder->respond(error_response(
      {404, "NOT_FOUND", fmt::format("no such endpoint: {}", printable(request.path, 200)), ""}));
}

void Api::page(const HttpRequest&, const Answer& answer) {
  answer->respond(page_response(std::string(kWebPage), /*talks=*/true));
}

double Api::uptime_seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

void Api::health(const HttpRequest&, const Answer& answer) {
  const trace::Manifest& about = model_.manifest;
  nlohmann::ordered_json active;
  if (const std::string id = worker_.active(); !id.empty()) active = id;
  answer->respond(json_response(200, {{"status", worker_.stopping() ? "stopping" : "ok"},
                                      {"model", model_.name},
                                      {"architecture", about.model.architecture},
                                      {"fingerprint", about.model.fingerprint},
                                      {"quantization", about.model.quantization},
                                      {"device", about.engine.device},
                                      {"vocabulary_size", model_.vocabulary()},
                                      {"context_length", model_.context_length()},
                                      {"chat", model_.chat.has_value()},
                                      {"judge", judgements_.possible()},
                                      {"dashboard", has_dashboard_},
                                      {"memory_used_bytes", resident_memory_bytes()},
                                      {"uptime_seconds", uptime_seconds()},
                                      {"active_job", active},
                                      {"queue_length", worker_.queue_length()},
                                      {"version", LOCKSTEP_VERSION}}));
}

void Api::metrics(const HttpRequest&, const Answer& answer) {
  const trace::Manifest& about = model_.manifest;
  HttpResponse response;
  response.type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = fmt::format(
      "# HELP lockstep_info What runs.\n# TYPE lockstep_info gauge\n"
      "lockstep_info{{version=\"{}\",model=\"{}\",fingerprint=\"{}\",device=\"{}\"}} 1\n",
      LOCKSTEP_VERSION, escape_label(model_.name), about.model.fingerprint, about.engine.device);
  response.body += metrics_.render();
  const auto gauge = [&](const char* name, const char* help, double value) {
    response.body += Metrics::render(name, "gauge", help, value);
  };
  gauge("lockstep_queue_length", "Jobs that wait.", static_cast<double>(worker_.queue_length()));
  gauge("lockstep_jobs_active", "Jobs that are computed: 0 or 1.",
        worker_.active().empty() ? 0 : 1);
  gauge("lockstep_connections", "Open connections.", static_cast<double>(connections()));
  gauge("lockstep_memory_bytes", "Memory that the process holds.",
        static_cast<double>(resident_memory_bytes()));
  gauge("lockstep_uptime_seconds", "Since the start.", uptime_seconds());
  answer->respond(std::move(response));
}

void Api::submit(JobFields fields, const Answer& answer, std::shared_ptr<JobListener> listener) {
  auto job = std::make_shared<Job>();
  answer->on_gone = [this, weak = std::weak_ptr(job)] {
    if (const auto left = weak.lock()) worker_.abandon(left);
  };
  job->id = fields.id;
  job->fields = std::move(fields);
  job->listener = std::move(listener);
  job->log_prompt = log_prompts_;
  // The other threads' news come through the network thread's queue: none of it can come before
  // this is done.
  if (auto problem = worker_.submit(job)) {
    answer->on_gone = nullptr;
    answer->entry.job_id = job->id;
    answer->entry.outcome = problem->code;
    return answer->respond(error_response(*problem));
  }
}

void Api::execute(const HttpRequest& request, const Answer& answer) {
  JobFields fields;
  if (const auto problem = read_execute(request.body, fields))
    return answer->respond(error_response(*problem));
  submit(std::move(fields), answer, execute_reply(answer, model_));
}

void Api::completion(const HttpRequest& request, const Answer& answer) {
  JobFields fields;
  if (const auto problem = read_completion(request.body, fields))
    return answer->respond(error_response(*problem));
  fields.id = random_id("cmpl");
  auto reply = openai_reply(answer, model_, fields);
  submit(std::move(fields), answer, std::move(reply));
}

void Api::chat(const HttpRequest& request, const Answer& answer) {
  JobFields fields;
  if (const auto problem = read_chat(request.body, fields))
    return answer->respond(error_response(*problem));
  fields.id = random_id("chatcmpl");
  auto reply = openai_reply(answer, model_, fields);
  submit(std::move(fields), answer, std::move(reply));
}

void Api::judge(const HttpRequest& request, const Answer& answer) {
  std::string id;
  if (const auto problem = read_job_id(request.body, id))
    return answer->respond(error_response(*problem));
  answer->respond(judgements_.begin(id));
}

void Api::judgement(const HttpRequest& request, const Answer& answer) {
  answer->endpoint = "/judge";
  if (auto wrong = unless_get("/judge/ID", request.method))
    return answer->respond(std::move(*wrong));
  judgements_.show(request.path, answer);
}

void Api::cancel(const HttpRequest& request, const Answer& answer) {
  std::string id;
  if (const auto problem = read_job_id(request.body, id))
    return answer->respond(error_response(*problem));
  worker_.cancel(id);
  judgements_.cancel(id);
  answer->respond(json_response(202, {{"job_id", id}, {"status", "cancelled"}}));
}

void Api::shutdown(const HttpRequest&, const Answer& answer) {
  answer->respond(json_response(202, {{"status", "stopping"}}));
  shutdown_();
}

nlohmann::ordered_json Api::model_json() const {
  return {{"id", model_.name},
          {"object", "model"},
          {"created", std::chrono::system_clock::to_time_t(created_)},
          {"owned_by", "lockstep"}};
}

void Api::models(const HttpRequest&, const Answer& answer) {
  answer->respond(json_response(
      200, {{"object", "list"}, {"data", nlohmann::ordered_json::array({model_json()})}}));
}

void Api::one_model(const HttpRequest& request, const Answer& answer) {
  answer->endpoint = "/v1/models";
  if (request.path.substr(request.path.rfind('/') + 1) == model_.name)
    return answer->respond(json_response(200, model_json()));
  answer->respond(error_response(
      {404, "NOT_FOUND", fmt::format("no such model; there is '{}'", model_.name), ""}));
}

}  // namespace lockstep::server
