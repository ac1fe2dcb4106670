#include <bit>

#include "server/judgement.h"

namespace lockstep::server {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// Holds what is computed now against what was told then, token by token.
class RepeatedAnswer : public JobListener {
 public:
  RepeatedAnswer(std::shared_ptr<Judgement> one, Recorded recorded)
      : one_(std::move(one)), recorded_(std::move(recorded)) {}

  void accepted(const Job&) override {}
  void refused(const ApiError& problem) override { recorded_(problem); }
  void started(const Job&) override { one_->enter(Judgement::Stage::kRecording); }

  std::optional<ApiError> token(const Job&, const JobToken& token) override {
    const Answer& answer = *one_->answer;
    const auto at = static_cast<size_t>(one_->recorded);
    if (at >= answer.tokens.size())
      return differs(fmt::format("it had {} tokens, and has more now", at));
    if (token.id != answer.tokens[at])
      return differs(
          fmt::format("token {} was {}, and is {} now", at, answer.tokens[at], token.id));
    if (!answer.logprobs.empty() &&
        (!token.logprobs || !same_bits(token.logprobs->chosen, answer.logprobs[at])))
      return differs(fmt::format("the log-probability of token {} was {}, and is {} now", at,
                                 answer.logprobs[at], token.logprobs ? token.logprobs->chosen : 0));
    ++one_->recorded;
    return std::nullopt;
  }

  void ended(const Job&, const JobEnd& end) override {
    std::optional<ApiError> problem = end.problem;
    if (const auto had = std::ssize(one_->answer->tokens); !problem && one_->recorded < had)
      problem = differs(fmt::format("it had {} tokens, and has {} now", had, one_->recorded));
    recorded_(problem);
  }

  void lost() noexcept override { recorded_(out_of_memory()); }

 private:
  static ApiError differs(const std::string& how) {
    return {500, "NOT_REPEATED",
            fmt::format("the answer did not come again as it was: {}; what was told cannot be "
                        "judged",
                        how),
            ""};
  }

  const std::shared_ptr<Judgement> one_;
  const Recorded recorded_;
};

}  // namespace

std::shared_ptr<JobListener> repeats_answer(std::shared_ptr<Judgement> judgement,
                                            Recorded recorded) {
  return std::make_shared<RepeatedAnswer>(std::move(judgement), std::move(recorded));
}

}  // namespace lockstep::server
