// The shapes in which a job's tokens reach a client.
#pragma once

#include <memory>

#include "server/job.h"
#include "server/job_fields.h"
#include "server/responder.h"
#include "server/served_model.h"

namespace lockstep::server {

// Server-sent events: started, token {t, i}, and one of end or error.
std::shared_ptr<JobListener> execute_reply(std::shared_ptr<Responder> responder,
                                           const ServedModel& model);

// OpenAI's completions or, where the request has messages, chat completions: streamed or whole, as
// the request asks.
std::shared_ptr<JobListener> openai_reply(std::shared_ptr<Responder> responder,
                                          const ServedModel& model, const JobFields& fields);

}  // namespace lockstep::server
