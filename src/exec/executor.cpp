#include "exec/executor.h"

#include "base/no_throw.h"

namespace lockstep::exec {

Result<View> Executor::run(const Step& step) {
  return no_throw([&] { return run_checked(step); });
}

Result<View> Executor::run_checked(const Step& step) {
  const auto count = static_cast<int64_t>(step.tokens.size());
  if (count == 0) return error("no tokens to evaluate");
  if (count > program_.context_length - positions_)
    return error("{} tokens after position {} do not fit the context of {} positions", count,
                 positions_, program_.context_length);
  for (const TokenId token : step.tokens)
    if (token < 0 || token >= program_.vocabulary)
      return error("token {} is outside the vocabulary of {}", token, program_.vocabulary);
  if (step.observer != nullptr) step.observer->begin_step(positions_, count);
  Result<View> logits = no_throw([&] { return evaluate(step); });
  if (step.observer != nullptr) step.observer->end_step(logits.ok());
  if (logits.ok()) positions_ += count;
  return logits;
}

Result<std::vector<float>> Executor::read_back(const op::Weight& weight, int64_t, int64_t) const {
  return error("this executor does not give its weights back (asked for {})", weight.name);
}

void Executor::rewind(int64_t positions) {
  LS_CHECK(positions >= 0 && positions <= positions_);
  positions_ = positions;
}

}  // namespace lockstep::exec
