// The last answers, as clients were told them: what can be judged.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "server/job.h"

namespace lockstep::server {

struct Answer {
  std::string job_id;
  std::string prompt_text;  // empty: the prompt was token ids
  JobFields fields;         // that give the same answer again; the prompt as token ids
  std::vector<engine::TokenId> tokens;
  std::vector<double> logprobs;  // of the tokens, where the client asked for them

  int64_t positions() const { return std::ssize(fields.prompt_tokens) + std::ssize(tokens); }
  int64_t bytes() const;
};

// Of the network thread.
class Answers {
 public:
  explicit Answers(size_t most = 64, int64_t most_bytes = 16 << 20)
      : most_(most), most_bytes_(most_bytes) {}

  // `ended`: by the model's own end-of-text token. An answer without tokens is none.
  void keep(const Job& job, bool ended);
  // Null: there is none of that job, or none any more.
  std::shared_ptr<const Answer> find(const std::string& job_id) const;
  size_t most() const { return most_; }

 private:
  const size_t most_;
  const int64_t most_bytes_;
  std::deque<std::shared_ptr<const Answer>> kept_;  // the newest last
  int64_t bytes_ = 0;
};

}  // namespace lockstep::server
