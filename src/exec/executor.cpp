#include "exec/executor.h"

#include "base/float16.h"

namespace lockstep::exec {

int64_t View::size() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

double View::at(int64_t index) const {
  switch (dtype) {
    case DType::kF64:
      return static_cast<const double*>(data)[index];
    case DType::kF32:
      return static_cast<double>(static_cast<const float*>(data)[index]);
    case DType::kF16:
      return static_cast<double>(half_to_float(static_cast<const uint16_t*>(data)[index]));
    case DType::kBF16:
      return static_cast<double>(bfloat_to_float(static_cast<const uint16_t*>(data)[index]));
  }
  LS_CHECK(false, "dtype {}", static_cast<int>(dtype));
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
