#include "engine/session.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/no_throw.h"
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
  bool holds() const { return filter_.holds() || (decoder_ && decoder_->holds()); }

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
  return no_throw([&]() -> Result<Session> {
    LS_TRY(op::Program program, model.program(context_length));
    LS_TRY(Session session, create(std::move(program), tokenizer, device, options));
    LS_TRY_VOID(model.file().check_unchanged());
    session.file_ = &model.file();
    return session;
  });
}

Result<Session> Session::create(op::Program program, const tokenizer::Tokenizer* tokenizer,
                                const exec::Device& device, const exec::Options& options) {
  return no_throw([&]() -> Result<Session> {
    auto kept = std::make_unique<op::Program>(std::move(program));
    LS_TRY(auto executor, device.create(*kept, options));
    return Session(std::move(kept), std::move(executor), tokenizer);
  });
}

Result<View> evaluate(exec::Executor& executor, exec::Step step) {
  Result<View> logits = error("the prompt is empty; it must have at least one token");
  std::span<const TokenId> rest = step.tokens;
  while (!rest.empty()) {
    step.tokens = rest.first(std::min(rest.size(), static_cast<size_t>(executor.step_tokens())));
    rest = rest.subspan(step.tokens.size());
    logits = executor.run(step);
    if (!logits.ok()) break;
  }
  return logits;
}

int64_t Session::reusable(const Request& request) const {
  if (request.observer != nullptr) return 0;
  const auto cached = std::span(history_).first(static_cast<size_t>(executor_->positions()));
  const auto shared = std::ranges::mismatch(request.prompt, cached).in1 - request.prompt.begin();
  // The last token is evaluated in any case: its logits are needed.
  const int64_t most = std::min<int64_t>(shared, std::ssize(request.prompt) - 1);
  if (executor_->same_bits_for_any_cut()) return std::max<int64_t>(most, 0);
  // Else only what a cold start would compute in the very same steps.
  const int64_t step = executor_->step_tokens();
  return std::max<int64_t>(std::min(most, prompt_positions_), 0) / step * step;
}

Result<Outcome> Session::generate(const Request& request, const OnToken& on_token,
                                  const std::atomic<bool>* cancel) {
  return no_throw([&] { return run_loop(request, on_token, cancel); });
}

Result<Outcome> Session::run_loop(const Request& request, const OnToken& on_token,
                                  const std::atomic<bool>* cancel) {
  LS_TRY_VOID(check(request.sampling));
  const auto prompt_size = static_cast<int64_t>(request.prompt.size());
  if (prompt_size > program_->context_length)
    return error("the prompt has {} tokens; the context has room for {}", prompt_size,
                 program_->context_length);
  if (file_ != nullptr) LS_TRY_VOID(file_->check_unchanged());
  Outcome outcome;
  outcome.reused = reusable(request);
  executor_->rewind(outcome.reused);
  prompt_positions_ = std::min(prompt_positions_, outcome.reused);
  history_ = request.prompt;
  const auto cancelled = [&] { return cancel != nullptr && *cancel; };

  TextOutput output(tokenizer_, request.stops);
  Sampler sampler(request.sampling);
  Logprobs logprobs;
  const auto show = [&](TokenId id, const std::string& text, bool ends) {
    outcome.text += text;
    if (on_token)
      on_token(
          {id, text, output.holds(), ends, id >= 0 && request.logprobs >= 0 ? &logprobs : nullptr});
  };
  const auto done = [&](StopReason reason) {
    outcome.reason = reason;
    if (const std::string rest = output.finish(); !rest.empty()) show(-1, rest, false);
    return outcome;
  };

  exec::Step step;
  step.tokens = std::span(request.prompt).subspan(static_cast<size_t>(outcome.reused));
  step.all_logits = request.all_logits;
  step.observer = request.observer;
  step.cancel = cancel;
  // The last token is chosen but never evaluated.
  const auto goes_on_greedily = [&] {
    return request.sampling.greedy() &&
           static_cast<int64_t>(outcome.tokens.size()) + 1 < request.max_tokens;
  };
  step.greedy = goes_on_greedily();
  auto start = std::chrono::steady_clock::now();
  Result<View> logits = evaluate(*executor_, step);
  outcome.prompt_seconds = seconds_since(start);
  prompt_positions_ = executor_->positions();
  start = std::chrono::steady_clock::now();
  while (true) {
    if (cancelled()) return done(StopReason::kCancelled);
    if (!logits.ok()) return logits.error();
    if (file_ != nullptr && file_->cut()) return file_->check_unchanged().error();
    if (static_cast<int64_t>(outcome.tokens.size()) >= request.max_tokens)
      return done(StopReason::kLength);
    LS_TRY(const TokenId id, sampler.choose(*logits, logits->shape[0] - 1, history_));
    if (request.logprobs >= 0)
      logprobs = logprobs_of(*logits, logits->shape[0] - 1, id, request.logprobs);
    outcome.tokens.push_back(id);
    history_.push_back(id);
    const bool ends = tokenizer_ != nullptr && tokenizer_->ends_generation(id);
    if (ends && !request.ignore_end) {
      show(id, "", true);
      return done(StopReason::kEnd);
    }
    const std::string text = output.push(id);
    show(id, text, false);
    if (output.stopped()) return done(StopReason::kStop);
    // The last token that fits is chosen but never evaluated.
    if (static_cast<int64_t>(outcome.tokens.size()) >= request.max_tokens)
      return done(StopReason::kLength);
    if (executor_->positions() >= program_->context_length) return done(StopReason::kContext);
    step.tokens = std::span(&id, 1);
    step.greedy = goes_on_greedily();
    logits = evaluate(*executor_, step);
    outcome.decode_seconds = seconds_since(start);
  }
}

}  // namespace lockstep::engine
