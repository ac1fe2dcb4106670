// What runs a Program: the interface that every executor fulfils.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "op/program.h"

namespace lockstep::exec {

using TokenId = int32_t;

// Numbers that somebody else owns, row-major.
struct View {
  DType dtype = DType::kF64;
  const void* data = nullptr;
  std::vector<int64_t> shape;

  int64_t size() const;
  double at(int64_t index) const;  // any dtype, as double
};

// Sees named values as they are computed. Watching leaves every bit of the results as it was.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual bool wants(op::ValueId id) const = 0;
  // `view` is valid during the call. Rows are the step's tokens.
  virtual void see(op::ValueId id, const View& view) = 0;
};

// One call of the forward pass on consecutive tokens, which take the next positions.
struct Step {
  std::span<const TokenId> tokens;
  bool all_logits = false;                    // a row for every token, not only for the last
  Observer* observer = nullptr;               // may be null
  const std::atomic<bool>* cancel = nullptr;  // may be null; looked at between ops
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Logits [rows, vocabulary], valid until the next call. An error (a token outside the
  // vocabulary, a full context, cancellation) leaves the positions as they were.
  virtual Result<View> run(const Step& step) = 0;

  // How many positions the KV cache holds; forgetting those from `positions` on.
  virtual int64_t positions() const = 0;
  virtual void rewind(int64_t positions) = 0;
};

// What run() checks first, the same for every executor.
Result<void> check_step(const op::Program& program, int64_t positions, const Step& step);

inline constexpr const char* kCancelledMessage = "cancelled";

}  // namespace lockstep::exec
