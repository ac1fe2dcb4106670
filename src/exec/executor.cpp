#include "exec/executor.h"

namespace lockstep::exec {

int64_t View::size() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

double View::at(int64_t index) const {
  return load_number(dtype, static_cast<const std::byte*>(data) + index * size_bytes(dtype));
}

Result<View> Executor::run(const Step& step) {
  const auto count = static_cast<int64_t>(step.tokens.size());
  if (count == 0) return error("no tokens to evaluate");
  if (count > program_.context_length - positions_)
    return error("{} tokens after position {} do not fit the context of {} positions", count,
                 positions_, program_.context_length);
  for (const TokenId token : step.tokens)
    if (token < 0 || token >= program_.vocabulary)
      return error("token {} is outside the vocabulary of {}", token, program_.vocabulary);
  if (step.observer != nullptr) step.observer->begin_step(positions_, count);
  Result<View> logits = evaluate(step);
  if (step.observer != nullptr) step.observer->end_step(logits.ok());
  if (logits.ok()) positions_ += count;
  return logits;
}

void Executor::rewind(int64_t positions) {
  LS_CHECK(positions >= 0 && positions <= positions_);
  positions_ = positions;
}

}  // namespace lockstep::exec
