// Generation: a prompt goes in, tokens and text come out, until something says stop.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
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
  bool ignore_end = false;             // go on after an end-of-text token
  exec::Observer* observer = nullptr;  // of every step; may be null
  bool all_logits = false;             // for the observer: a row for every prompt token
};

enum class StopReason { kEnd, kStop, kLength, kContext, kCancelled };
std::string_view name(StopReason reason);  // "end", "stop", ...

struct Outcome {
  std::vector<TokenId> tokens;  // generated, the end token included
  std::string text;             // empty for models without a tokenizer
  StopReason reason = StopReason::kLength;
  double prompt_seconds = 0;
  double decode_seconds = 0;
};

// Called for each token, with the text that can be shown now (perhaps none). `id` is -1 for text
// that was held back until the end.
using OnToken = std::function<void(TokenId id, std::string_view text)>;

// Evaluates the step's tokens in pieces, so that memory stays bounded and cancelling is prompt. The
// logits are those of the last piece.
Result<exec::View> evaluate(exec::Executor& executor, exec::Step step);

class Session {
 public:
  // `tokenizer` may be null: then there is no text. Both must outlive the session.
  static Result<Session> create(const model::Model& model, const tokenizer::Tokenizer* tokenizer,
                                const exec::Device& device, const exec::Options& options,
                                int64_t context_length);

  // The same for a program that somebody altered.
  static Result<Session> create(op::Program program, const tokenizer::Tokenizer* tokenizer,
                                const exec::Device& device, const exec::Options& options);

  Result<Outcome> generate(const Request& request, const OnToken& on_token,
                           const std::atomic<bool>* cancel = nullptr);

  const op::Program& program() const { return *program_; }
  const exec::Executor& executor() const { return *executor_; }

 private:
  Session(std::unique_ptr<op::Program> program, std::unique_ptr<exec::Executor> executor,
          const tokenizer::Tokenizer* tokenizer)
      : program_(std::move(program)), executor_(std::move(executor)), tokenizer_(tokenizer) {}

  std::unique_ptr<op::Program> program_;  // its address stays when the Session moves
  std::unique_ptr<exec::Executor> executor_;
  const tokenizer::Tokenizer* tokenizer_;
};

}  // namespace lockstep::engine
