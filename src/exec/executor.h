// What runs a Program: the interface that every executor fulfils.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "base/view.h"
#include "op/observer.h"
#include "op/program.h"

namespace lockstep::exec {

using TokenId = int32_t;

// The arithmetic of an executor, in the words of a trace's manifest.
struct Precision {
  std::string_view compute;      // sums and functions
  std::string_view activations;  // what ops hand on
  std::string_view kv;           // the cache
};

// One call of the forward pass on consecutive tokens, which take the next positions.
struct Step {
  std::span<const TokenId> tokens;
  bool all_logits = false;                    // a row for every token, not only for the last
  op::Observer* observer = nullptr;           // may be null
  const std::atomic<bool>* cancel = nullptr;  // may be null; looked at between ops
  // The next step is likely to be the token with the largest of these logits, of equal ones the
  // first: an executor may set out on it.
  bool greedy = false;
};

class Executor {
 public:
  explicit Executor(const op::Program& program) : program_(program) {}
  virtual ~Executor() = default;

  // Logits [rows, vocabulary], valid until the next call. An error (a token outside the
  // vocabulary, a full context, cancellation, no memory, an exception of the observer) leaves the
  // positions as they were.
  Result<View> run(const Step& step);

  // How many positions the KV cache holds; forgetting those from `positions` on.
  int64_t positions() const { return positions_; }
  void rewind(int64_t positions);

  // Tokens of a prompt that are best taken in one step.
  virtual int64_t step_tokens() const { return 256; }

  // Rows of one of the program's weights as it holds them, decoded: [rows, columns].
  virtual Result<std::vector<float>> read_back(const op::Weight& weight, int64_t first,
                                               int64_t rows) const;

  virtual DType dtype() const = 0;  // of the values that it shows
  virtual Precision precision() const = 0;
  // Whether a row has the same bits however the tokens before it and with it were cut into steps.
  virtual bool same_bits_for_any_cut() const { return false; }

 protected:
  // The step has been checked; it starts at positions().
  virtual Result<View> evaluate(const Step& step) = 0;

  const op::Program& program() const { return program_; }

 private:
  Result<View> run_checked(const Step& step);

  const op::Program& program_;
  int64_t positions_ = 0;
};

inline constexpr const char* kCancelledMessage = "cancelled";

}  // namespace lockstep::exec
