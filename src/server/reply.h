// What the shapes of replies have in common.
#pragma once

#include <memory>

#include "server/job.h"
#include "server/responder.h"
#include "server/served_model.h"

namespace lockstep::server {

class Reply : public JobListener {
 public:
  Reply(std::shared_ptr<Responder> responder, const ServedModel& model)
      : responder_(std::move(responder)), model_(model) {}

  void accepted(const Job& job) override {
    LogEntry& entry = responder_->entry;
    entry.job_id = job.id;
    entry.tokens_in = job.tokens_in;
    if (job.prepared && job.log_prompt) entry.prompt = job.prompt_text;
  }

  void refused(const ApiError& problem) override { responder_->respond(error_response(problem)); }
  void lost() noexcept override { responder_->drop(); }

 protected:
  Responder& responder() { return *responder_; }
  const ServedModel& model() const { return model_; }

  // How the job went, for the log.
  void note(const Job& job, const JobEnd& end) {
    LogEntry& entry = responder_->entry;
    entry.outcome = end.problem ? end.problem->code : std::string(engine::name(end.reason));
    entry.tokens_out = end.tokens_out;
    if (job.first_token)
      entry.first_token_ms =
          std::chrono::duration<double, std::milli>(*job.first_token - job.accepted).count();
  }

 private:
  std::shared_ptr<Responder> responder_;
  const ServedModel& model_;
};

}  // namespace lockstep::server
