#include "server/answers.h"

#include <algorithm>

namespace lockstep::server {

int64_t Answer::bytes() const {
  const size_t ids = fields.prompt_tokens.size() + tokens.size();
  return static_cast<int64_t>(sizeof(Answer) + prompt_text.size() + ids * sizeof(engine::TokenId) +
                              logprobs.size() * sizeof(double));
}

void Answers::keep(const Job& job, bool ended) {
  if (job.told.empty()) return;
  auto answer = std::make_shared<Answer>();
  answer->job_id = job.id;
  answer->prompt_text = job.prompt_text;
  answer->tokens = job.told;
  answer->logprobs = job.told_logprobs;
  JobFields& fields = answer->fields;
  fields.prompt_tokens = job.request.prompt;
  fields.sampling = job.request.sampling;
  fields.seeded = true;
  fields.stops = job.request.stops;
  fields.ignore_end = job.request.ignore_end;
  fields.logprobs = answer->logprobs.empty() ? -1 : 0;
  // The token that ended it was chosen too, though nobody was shown it.
  fields.max_tokens = std::ssize(answer->tokens) + (ended ? 1 : 0);

  const auto drop = [&](auto one) {
    bytes_ -= (*one)->bytes();
    kept_.erase(one);
  };
  // An id may come again once its job has ended.
  if (const auto old =
          std::ranges::find(kept_, job.id, [](const auto& one) { return one->job_id; });
      old != kept_.end())
    drop(old);
  const int64_t bytes = answer->bytes();
  kept_.push_back(std::move(answer));
  bytes_ += bytes;
  while (kept_.size() > most_ || bytes_ > most_bytes_) drop(kept_.begin());
}

std::shared_ptr<const Answer> Answers::find(const std::string& job_id) const {
  const auto found = std::ranges::find(kept_, job_id, [](const auto& one) { return one->job_id; });
  return found != kept_.end() ? *found : nullptr;
}

}  // namespace lockstep::server
