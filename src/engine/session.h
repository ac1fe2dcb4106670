// Generation: a prompt goes in, tokens and text come out, until something says stop.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"
#include "exec/registry.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::engine {

struct Request {
  std::vector<TokenId> prompt;
  int64_t max_tokens = 256;
  Sampling sampling;
  std::vector<std::string> stops;
  bool ignore_end = false;           // go on after an end-of-text token
  op::Observer* observer = nullptr;  // of every step; may be null
  bool all_logits = false;           // for the observer: a row for every prompt token
  int64_t logprobs = -1;             // so many of the likeliest with each token; -1: none
};

enum class StopReason { kEnd, kStop, kLength, kContext, kCancelled };
std::string_view name(StopReason reason);  // "end", "stop", ...

struct Outcome {
  std::vector<TokenId> tokens;  // generated, the end token included
  std::string text;             // empty for models without a tokenizer
  StopReason reason = StopReason::kLength;
  int64_t reused = 0;  // prompt tokens that were still in the KV cache
  double prompt_seconds = 0;
  double decode_seconds = 0;
};

// A token as it leaves the loop.
struct Emitted {
  TokenId id = -1;        // -1: only text that was held back until the end
  std::string_view text;  // that can be shown now, perhaps none
  bool held = false;      // some text waits: half a character, or a stop sequence's start
  bool ends = false;      // an end-of-text token, after which nothing comes
  const Logprobs* logprobs = nullptr;  // where they were asked for
};
using OnToken = std::function<void(const Emitted&)>;

// Evaluates the step's tokens in pieces, so that memory stays bounded and cancelling is prompt. The
// logits are those of the last piece.
Result<View> evaluate(exec::Executor& executor, exec::Step step);

class Session {
 public:
  // `tokenizer` may be null: then there is no text. Both must outlive the session. A model file
  // that changes on the disk meanwhile is an error of each generation from then on.
  static Result<Session> create(const model::Model& model, const tokenizer::Tokenizer* tokenizer,
                                const exec::Device& device, const exec::Options& options,
                                int64_t context_length);

  // The same for a program that somebody altered.
  static Result<Session> create(op::Program program, const tokenizer::Tokenizer* tokenizer,
                                const exec::Device& device, const exec::Options& options);

  // What the prompt shares with the tokens of the call before stays in the KV cache, where that
  // leaves every bit of the result as it is and nobody observes: an observer sees all positions.
  // Whatever throws (no memory, `on_token`, the observer) is an error of this call alone.
  Result<Outcome> generate(const Request& request, const OnToken& on_token,
                           const std::atomic<bool>* cancel = nullptr);

  const op::Program& program() const { return *program_; }
  const exec::Executor& executor() const { return *executor_; }

 private:
  Session(std::unique_ptr<op::Program> program, std::unique_ptr<exec::Executor> executor,
          const tokenizer::Tokenizer* tokenizer)
      : program_(std::move(program)), executor_(std::move(executor)), tokenizer_(tokenizer) {}

  Result<Outcome> run_loop(const Request& request, const OnToken& on_token,
                           const std::atomic<bool>* cancel);
  int64_t reusable(const Request& request) const;

  std::unique_ptr<op::Program> program_;  // its address stays when the Session moves
  std::unique_ptr<exec::Executor> executor_;
  const tokenizer::Tokenizer* tokenizer_;
  const gguf::File* file_ = nullptr;  // that the weights lie in, where that is known
  std::vector<TokenId> history_;      // the executor's positions hold the first of these
  int64_t prompt_positions_ = 0;      // of those, how many the last prompt's steps computed
};

}  // namespace lockstep::engine
