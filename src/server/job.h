// One request for text, from its acceptance to its end.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/session.h"
#include "server/api_error.h"
#include "server/job_fields.h"
#include "trace/recorder.h"

namespace lockstep::server {

using Clock = std::chrono::steady_clock;

struct Job;

// A token and its text. Every token that was chosen has one, but for the end-of-text token; the
// texts together are the answer, and each is whole characters. Text may be empty: where a character
// takes several tokens, its last one has it.
struct JobToken {
  int64_t index = 0;  // from 0
  engine::TokenId id = 0;
  std::string text;
  std::optional<engine::Logprobs> logprobs;
  Clock::time_point made;
};

struct JobEnd {
  std::optional<ApiError> problem;  // else the rest holds
  engine::StopReason reason = engine::StopReason::kLength;
  int64_t tokens_out = 0;  // without the end-of-text token
  int64_t reused = 0;      // prompt tokens that were still in the cache
  double prompt_seconds = 0;
  double decode_seconds = 0;
};

// Told in this order: accepted, started, tokens, ended; ended comes once, whatever happens. Or it
// is told nothing but that the job was refused. On the network thread.
class JobListener {
 public:
  virtual ~JobListener() = default;
  virtual void accepted(const Job& job) = 0;
  virtual void refused(const ApiError& problem) = 0;
  virtual void started(const Job& job) = 0;
  // A problem ends the job.
  virtual std::optional<ApiError> token(const Job& job, const JobToken& token) = 0;
  virtual void ended(const Job& job, const JobEnd& end) = 0;
  // Its end could not be told: there is no memory even for that.
  virtual void lost() noexcept {}
};

struct Job {
  std::string id;
  JobFields fields;  // what was asked for; of the preparing thread
  // What becomes of it: of the preparing thread, then of the compute thread.
  engine::Request request;
  std::string prompt_text;
  int64_t tokens_in = 0;
  uint64_t seed = 0;
  Clock::time_point accepted = Clock::now();
  std::atomic<bool> cancel{false};
  // Recorded this way, whatever the worker does with others. What fails ends the job then.
  std::optional<trace::RecordOptions> record;

  // Of the network thread.
  std::shared_ptr<JobListener> listener;  // gone once it was told the end
  bool log_prompt = false;
  bool prepared = false;
  bool started = false;
  bool ended = false;
  std::vector<engine::TokenId> told;  // to the listener
  std::vector<double> told_logprobs;  // of those, where they were asked for
  std::optional<Clock::time_point> first_token, last_token;
};

// "judge-f00d..." with 96 bits of chance: nobody guesses another client's.
std::string random_id(const char* prefix);

}  // namespace lockstep::server
