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

Result<void> check_step(const op::Program& program, int64_t positions, const Step& step) {
  const auto count = static_cast<int64_t>(step.tokens.size());
  if (count == 0) return error("no tokens to evaluate");
  if (count > program.context_length - positions)
    return error("{} tokens after position {} do not fit the context of {} positions", count,
                 positions, program.context_length);
  for (const TokenId token : step.tokens)
    if (token < 0 || token >= program.vocabulary)
      return error("token {} is outside the vocabulary of {}", token, program.vocabulary);
  return {};
}

}  // namespace lockstep::exec
