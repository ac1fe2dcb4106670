#include "exec/executor.h"

#include <algorithm>

#include "base/no_throw.h"

namespace lockstep::exec {

int64_t View::size() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

double View::at(int64_t index) const {
  return load_number(dtype, static_cast<const std::byte*>(data) + index * size_bytes(dtype));
}

void Observers::begin_step(int64_t first_position, int64_t tokens) {
  for (Observer* observer : list_) observer->begin_step(first_position, tokens);
}

bool Observers::wants(op::ValueId id) const {
  return std::ranges::any_of(list_, [&](const Observer* observer) { return observer->wants(id); });
}

void Observers::see(op::ValueId id, const View& view) {
  for (Observer* observer : list_)
    if (observer->wants(id)) observer->see(id, view);
}

void Observers::end_step(bool whole) {
  for (Observer* observer : list_) observer->end_step(whole);
}

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
