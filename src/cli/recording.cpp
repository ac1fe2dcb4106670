#include "cli/recording.h"

#include <filesystem>

#include "gguf/fingerprint.h"

namespace lockstep::cli {
namespace {

// "Q4_K" where one format has most of the weights' bytes, as people name files.
std::string main_format(const gguf::File& file) {
  std::map<std::string_view, size_t> bytes;
  for (const gguf::Tensor& tensor : file.tensors())
    bytes[tensor.format->name] += tensor.data.size();
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return most != bytes.end() ? std::string(most->first) : "";
}

nlohmann::ordered_json to_json(const engine::Sampling& sampling) {
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repeat_penalty", sampling.repeat_penalty},
          {"repeat_window", sampling.repeat_window},
          {"seed", sampling.seed}};
}

trace::Manifest describe(const model::Model& model, const exec::Device& device,
                         const exec::Executor& executor, const Prompt& prompt,
                         const engine::Sampling& sampling) {
  const exec::Precision precision = executor.precision();
  trace::Manifest manifest;
  manifest.engine = {"lockstep",
                     LOCKSTEP_VERSION,
                     std::string(device.name),
                     {std::string(precision.compute), std::string(precision.activations),
                      std::string(precision.kv)}};
  manifest.model = {std::filesystem::path(model.file().path()).filename().string(),
                    std::string(model.config().arch->name), gguf::fingerprint(model.file()),
                    main_format(model.file())};
  manifest.prompt = prompt.text;
  manifest.tokens = prompt.tokens;
  manifest.prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  manifest.sampling = to_json(sampling);
  return manifest;
}

}  // namespace

void declare_recording(CLI::App& app, RecordingFlags& flags) {
  auto* trace =
      app.add_option("--trace", flags.trace.folder, "Record the forward pass in this new folder");
  app.add_option("--checkpoints", flags.trace.checkpoints,
                 "What to record: logits, layers, ops, all, or names and globs: embedding,blk.*.q")
      ->needs(trace)
      ->capture_default_str();
  app.add_option("--logits", flags.logits, "Rows of logits to record: all, or last of each step")
      ->needs(trace)
      ->check(CLI::IsMember({"all", "last"}))
      ->capture_default_str();
  app.add_flag("--trace-drop", flags.trace.drop_when_slow,
               "Leave steps out, counted, rather than wait for a slow disk")
      ->needs(trace);
}

Result<Recording> Recording::start(const RecordingFlags& flags, const model::Model& model,
                                   const exec::Device& device, const engine::Session& session,
                                   const Prompt& prompt, const engine::Sampling& sampling) {
  Recording recording;
  if (!flags.trace.folder.empty()) {
    trace::RecordOptions options = flags.trace;
    options.last_logits = flags.logits == "last";
    const exec::Executor& executor = session.executor();
    LS_TRY(recording.recorder_,
           trace::Recorder::create(session.program(), executor.dtype(), options,
                                   describe(model, device, executor, prompt, sampling)));
    recording.observers_.add(recording.recorder_.get());
  }
  LS_TRY(const trace::JsonlLogOptions log, trace::JsonlLogOptions::from_environment());
  if (!log.file.empty()) {
    LS_TRY(recording.logger_, trace::JsonlLogger::create(session.program(), log));
    recording.observers_.add(recording.logger_.get());
  }
  return recording;
}

exec::Observer* Recording::observer() {
  return observers_.empty() ? nullptr : &observers_;
}

bool Recording::wants_all_logits() const {
  return logger_ != nullptr || (recorder_ != nullptr && recorder_->wants_all_logits());
}

Result<void> Recording::finish(const std::vector<engine::TokenId>& prompt,
                               const std::vector<engine::TokenId>& generated) {
  if (logger_ != nullptr) LS_TRY_VOID(logger_->finish());
  if (recorder_ == nullptr) return {};
  std::vector<engine::TokenId> tokens = prompt;
  tokens.insert(tokens.end(), generated.begin(), generated.end());
  return recorder_->finish(tokens);
}

}  // namespace lockstep::cli
