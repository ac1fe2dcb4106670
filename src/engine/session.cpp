#include "engine/session.h"

#include <chrono>
#include <optional>

#include "engine/stop.h"

namespace lockstep::engine {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Tokens to text that may be shown, and whether a stop sequence has come.
class TextOutput {
 public:
  TextOutput(const tokenizer::Tokenizer* tokenizer, const std::vector<std::string>& stops)
      : filter_(stops) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
  }

  std::string push(TokenId id) { return decoder_ ? filter_.push(decoder_->push(id)) : ""; }

  std::string finish() {
    if (!decoder_ || filter_.stopped()) return "";
    std::string text = filter_.push(decoder_->finish());
    return filter_.stopped() ? text : text + filter_.finish();
  }

  bool stopped() const { return filter_.stopped(); }

 private:
  std::optional<tokenizer::StreamDecoder> decoder_;
  StopFilter filter_;
};

}  // namespace

std::string_view name(StopReason reason) {
  constexpr std::string_view kNames[] = {"end", "stop", "length", "context", "cancelled"};
  return kNames[static_cast<int>(reason)];
}

Result<Session> Session::create(const model::Model& model, const tokenizer::Tokenizer* tokenizer,
                                const exec::Device& device, const exec::Options& options,
                                int64_t context_length) {
  LS_TRY(op::Program program, model.program(context_length));
  return create(std::move(program), tokenizer, device, options);
}

Result<Session> Session::create(op::Program program, const tokenizer::Tokenizer* tokenizer,
                                const exec::Device& device, const exec::Options& options) {
  auto kept = std::make_unique<op::Program>(std::move(program));
  LS_TRY(auto executor, device.create(*kept, options));
  return Session(std::move(kept), std::move(executor), tokenizer);
}

Result<exec::View> evaluate(exec::Executor& executor, exec::Step step) {
  Result<exec::View> logits = error("the prompt is empty; it must have at least one token");
  std::span<const TokenId> rest = step.tokens;
  while (!rest.empty()) {
    step.tokens = rest.first(std::min(rest.size(), static_cast<size_t>(executor.step_tokens())));
    rest = rest.subspan(step.tokens.size());
    logits = executor.run(step);
    if (!logits.ok()) break;
  }
  return logits;
}

Result<Outcome> Session::generate(const Request& request, const OnToken& on_token,
                                  const std::atomic<bool>* cancel) {
  LS_TRY_VOID(check(request.sampling));
  const auto prompt_size = static_cast<int64_t>(request.prompt.size());
  if (prompt_size > program_->context_length)
    return error("the prompt has {} tokens; the context has room for {}", prompt_size,
                 program_->context_length);
  executor_->rewind(0);
  const auto cancelled = [&] { return cancel != nullptr && *cancel; };

  Outcome outcome;
  TextOutput output(tokenizer_, request.stops);
  Sampler sampler(request.sampling);
  std::vector<TokenId> history = request.prompt;
  const auto show = [&](TokenId id, const std::string& text) {
    outcome.text += text;
    if (on_token) on_token(id, text);
  };
  const auto done = [&](StopReason reason) {
    outcome.reason = reason;
    if (const std::string rest = output.finish(); !rest.empty()) show(-1, rest);
    return outcome;
  };

  exec::Step step;
  step.tokens = request.prompt;
  step.all_logits = request.all_logits;
  step.observer = request.observer;
  step.cancel = cancel;
  auto start = std::chrono::steady_clock::now();
  Result<exec::View> logits = evaluate(*executor_, step);
  outcome.prompt_seconds = seconds_since(start);
  start = std::chrono::steady_clock::now();
  while (true) {
    if (cancelled()) return done(StopReason::kCancelled);
    if (!logits.ok()) return logits.error();
    if (static_cast<int64_t>(outcome.tokens.size()) >= request.max_tokens)
      return done(StopReason::kLength);
    LS_TRY(const TokenId id, sampler.choose(*logits, logits->shape[0] - 1, history));
    outcome.tokens.push_back(id);
    history.push_back(id);
    const bool ends = tokenizer_ != nullptr && tokenizer_->ends_generation(id);
    if (ends && !request.ignore_end) {
      show(id, "");
      return done(StopReason::kEnd);
    }
    show(id, output.push(id));
    if (output.stopped()) return done(StopReason::kStop);
    // The last token that fits is chosen but never evaluated.
    if (static_cast<int64_t>(outcome.tokens.size()) >= request.max_tokens)
      return done(StopReason::kLength);
    if (executor_->positions() >= program_->context_length) return done(StopReason::kContext);
    step.tokens = std::span(&id, 1);
    logits = evaluate(*executor_, step);
    outcome.decode_seconds = seconds_since(start);
  }
}

}  // namespace lockstep::engine
