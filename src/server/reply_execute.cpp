#include <cmath>

#include "server/replies.h"
#include "server/reply.h"

namespace lockstep::server {
namespace {

double milliseconds(double seconds) {
  return std::round(seconds * 1e6) / 1e3;
}

class ExecuteReply : public Reply {
 public:
  using Reply::Reply;

  void accepted(const Job& job) override {
    Reply::accepted(job);
    responder().begin_events();
  }

  void started(const Job& job) override {
    event("started", {{"job_id", job.id},
                      {"model", model().name},
                      {"tokens_in", job.tokens_in},
                      {"seed", job.seed}});
  }

  std::optional<ApiError> token(const Job&, const JobToken& token) override {
    event("token", {{"t", token.text}, {"i", token.index}});
    return std::nullopt;
  }

  void ended(const Job& job, const JobEnd& end) override {
    note(job, end);
    if (end.problem)
      event("error", {{"code", end.problem->code}, {"message", end.problem->message}});
    else
      event("end", {{"tokens_out", end.tokens_out},
                    {"decode_time_ms", milliseconds(end.decode_seconds)},
                    {"stop_reason", engine::name(end.reason)},
                    {"tokens_in", job.tokens_in},
                    {"tokens_reused", end.reused},
                    {"prompt_time_ms", milliseconds(end.prompt_seconds)}});
    responder().end();
  }

 private:
  void event(const char* name, const nlohmann::ordered_json& data) {
    responder().send(fmt::format("event: {}\ndata: {}\n\n", name, dump(data)));
  }
};

}  // namespace

std::shared_ptr<JobListener> execute_reply(std::shared_ptr<Responder> responder,
                                           const ServedModel& model) {
  return std::make_shared<ExecuteReply>(std::move(responder), model);
}

}  // namespace lockstep::server
