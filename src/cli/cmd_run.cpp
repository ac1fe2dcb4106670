// lockstep run: generate from a prompt.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/notice.h"
#include "base/shown_text.h"
#include "cli/command.h"
#include "cli/device.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/recording.h"
#include "engine/recording.h"
#include "engine/session.h"

namespace lockstep::cli {
namespace run_command {

struct Flags {
  std::string model = kDefaultModel;
  PromptFlags prompt;
  int64_t max_tokens = 256;
  engine::Sampling sampling;
  std::vector<std::string> stops;
  bool ignore_end = false;
  int64_t context = 0;
  DeviceFlags device;
  bool json = false;
  RecordingFlags recording;
};

constexpr double kNotableWait = 0.1;  // seconds

std::atomic<bool> interrupted = false;

std::atomic<int> ending_signal = 0;

// The first Ctrl-C or SIGTERM ends the generation with what there is; the second one the program.
void on_interrupt(int signal) {
  ending_signal = signal;
  interrupted = true;
  std::signal(signal, SIG_DFL);
}

// Standard output, which may stop taking text: a full disk, or a reader that went away.
class TextOut {
 public:
  void write(std::string_view given) {
    if (failure_ != 0) return;
    const std::string text = shown_text(given, STDOUT_FILENO);
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (!written || std::fflush(stdout) != 0) failure_ = errno;
  }
  bool failed() const { return failure_ != 0; }
  Result<void> result() const {
    if (failure_ == 0 || failure_ == EPIPE) return {};  // who left does not miss the rest
    return error("cannot write to standard output: {}", std::strerror(failure_));
  }

 private:
  int failure_ = 0;
};

nlohmann::ordered_json to_json(const engine::Request& request, const engine::Outcome& outcome) {
  nlohmann::ordered_json json;
  json["text"] = outcome.text;
  json["tokens"] = outcome.tokens;
  json["prompt_tokens"] = request.prompt;
  json["stop_reason"] = engine::name(outcome.reason);
  json["prompt_seconds"] = outcome.prompt_seconds;
  json["decode_seconds"] = outcome.decode_seconds;
  return json;
}

void report_speed(const engine::Request& request, const engine::Outcome& outcome) {
  const auto rate = [](size_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
  };
  const size_t decoded = outcome.tokens.empty() ? 0 : outcome.tokens.size() - 1;
  notice("prompt: {} tokens, {:.1f}/s; generated: {} tokens, {:.1f}/s; stopped by {}\n",
         request.prompt.size(), rate(request.prompt.size(), outcome.prompt_seconds),
         outcome.tokens.size(), rate(decoded, outcome.decode_seconds),
         engine::name(outcome.reason));
}

Result<int> run(const Flags& flags) {
  LS_TRY(const std::string path, model_path(flags.model));
  LS_TRY(const model::Model model, model::Model::load(path, !flags.device.no_map));
  LS_TRY(const Prompt prompt, read_prompt(flags.prompt, model));
  LS_TRY(const exec::Device* device, find_device(flags.device));

  engine::Request request;
  request.prompt = prompt.tokens;
  request.max_tokens = flags.max_tokens;
  request.sampling = flags.sampling;
  request.stops = flags.stops;
  request.ignore_end = flags.ignore_end;

  // Without --ctx: as much as this run can use.
  const auto prompt_size = static_cast<int64_t>(request.prompt.size());
  const int64_t limit = model.config().context_length;
  if (prompt_size > limit)
    return error("the prompt has {} tokens; the model's context has {} positions", prompt_size,
                 limit);
  const int64_t context =
      flags.context > 0
          ? flags.context
          : prompt_size + std::min(limit - prompt_size, std::max<int64_t>(flags.max_tokens, 0));
  LS_TRY(engine::Session session, engine::Session::create(model, prompt.tokenizer.get(), *device,
                                                          options_of(flags.device), context));

  LS_TRY(const trace::JsonlLogOptions log, trace::JsonlLogOptions::from_environment());
  trace::Manifest manifest;  // its fingerprint takes a while: only where there will be a trace
  if (!flags.recording.trace.folder.empty())
    manifest = engine::describe(model, *device, session.executor());
  LS_TRY(engine::Recording recording,
         engine::Recording::start(flags.recording.options(), log, session, manifest, request,
                                  prompt.text));
  recording.attach(request);

  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that went away ends the run, not the recording
  TextOut out;
  bool first = true;
  const auto on_token = [&](const engine::Emitted& token) {
    if (flags.json) return;
    std::string ids;  // a model without a tokenizer shows ids
    if (prompt.tokenizer == nullptr) ids = fmt::format("{}{}", first ? "" : " ", token.id);
    first = false;
    out.write(prompt.tokenizer != nullptr ? token.text : ids);
    if (out.failed()) interrupted = true;  // no reason to go on
  };
  LS_TRY(const engine::Outcome outcome, session.generate(request, on_token, &interrupted));
  if (flags.json)
    out.write(json_text(to_json(request, outcome)) + "\n");
  else
    out.write("\n");
  if (isatty(STDERR_FILENO) == 1) report_speed(request, outcome);
  if (const double waited = recording.waited(); waited >= kNotableWait)
    fmt::print(stderr,
               "the model waited {:.1f} s for the disk, which is slower than the model; "
               "'--checkpoints layers' or 'logits' writes less\n",
               waited);
  // Last, so that a disk that is full does not cost the text.
  const bool complete = outcome.reason != engine::StopReason::kCancelled;
  const Result<void> recorded = recording.finish(request.prompt, outcome.tokens, complete);
  if (!recorded.ok()) return error("the recording failed: {}", recorded.error().message);
  LS_TRY_VOID(out.result());
  return complete || ending_signal == 0 ? kDone : 128 + ending_signal;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_value(app, "-m,--model", flags->model, kModel,
            "GGUF file, folder from the hub, or the name of a model")
      ->default_str(flags->model);
  declare_prompt(app, flags->prompt);
  const auto number = [&](const char* names, auto& variable, auto range, const char* help) {
    show_default(add_number(app, names, variable, range, help), variable);
  };
  number("-n,--max-tokens", flags->max_tokens, NumberRange<int64_t>{0, int64_t{1} << 30},
         "Most tokens to generate");
  engine::Sampling& sampling = flags->sampling;
  number("--temp", sampling.temperature, NumberRange<double>{0, 100},
         "Temperature; 0 always takes the likeliest token");
  number("--top-k", sampling.top_k, NumberRange<int64_t>{.least = 0},
         "Sample from the k likeliest; 0: all");
  number("--top-p", sampling.top_p, NumberRange<double>{0, 1, true},
         "Sample from the likeliest with this probability together");
  number("--min-p", sampling.min_p, NumberRange<double>{0, 1},
         "Drop what is less likely than this part of the likeliest");
  number("--repeat-penalty", sampling.repeat_penalty, NumberRange<double>{0, 100, true},
         "Penalty on recent tokens; 1: none");
  number("--repeat-window", sampling.repeat_window, NumberRange<int64_t>{.least = 0},
         "How many tokens are recent");
  number("--seed", sampling.seed, NumberRange<uint64_t>{}, "Same seed, same text");
  add_values(app, "--stop", flags->stops, kText,
             "Stop before this text; may be given several times");
  app.add_flag("--ignore-eos", flags->ignore_end, "Go on after an end-of-text token");
  add_number(app, "--ctx", flags->context, {1, int64_t{1} << 30},
             "Positions of the KV cache (default: what the run needs)");
  declare_device(app, flags->device);
  declare_recording(app, flags->recording);
  app.add_flag("--json", flags->json, "Print one JSON object with text, tokens and times");
  return [flags] { return run(*flags); };
}

}  // namespace run_command

const Command kRunCommand = {
    "run",
    "Generate text from a prompt",
    "  lockstep run -p 'Write a haiku about rain'\n"
    "  lockstep run -m model.gguf --chat -p 'What is a tensor?' --temp 0.7 --seed 3\n"
    "  lockstep run -m model.gguf --tokens 1,15043,3186 -n 8 --json\n"
    "  lockstep run -p 'Write a haiku about snow' --trace snow.trace --checkpoints layers\n",
    run_command::declare,
};

}  // namespace lockstep::cli
