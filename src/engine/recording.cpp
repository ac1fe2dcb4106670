#include "engine/recording.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/no_throw.h"
#include "gguf/fingerprint.h"

namespace lockstep::engine {
namespace {

nlohmann::ordered_json to_json(const Sampling& sampling) {
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repeat_penalty", sampling.repeat_penalty},
          {"repeat_window", sampling.repeat_window},
          {"seed", sampling.seed}};
}

// "Q4_K" where one format has most of the weights' bytes, as people name files.
std::string main_format(const gguf::File& file) {
  std::map<std::string_view, size_t> bytes;
  for (const gguf::Tensor& tensor : file.tensors())
    bytes[tensor.format->name] += tensor.data.size();
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return most != bytes.end() ? std::string(most->first) : "";
}

}  // namespace

trace::Manifest describe(const model::Model& model, const exec::Device& device,
                         const exec::Executor& executor) {
  const exec::Precision precision = executor.precision();
  trace::Manifest manifest;
  manifest.engine = {"lockstep",
                     LOCKSTEP_VERSION,
                     std::string(device.name),
                     {std::string(precision.compute), std::string(precision.activations),
                      std::string(precision.kv)}};
  std::error_code failed;  // then the path stays as it was given
  const std::filesystem::path path = model.file().path();
  const std::filesystem::path absolute = std::filesystem::absolute(path, failed);
  manifest.model = {.file = path.filename().string(),
                    .path = (failed ? path : absolute.lexically_normal()).string(),
                    .architecture = std::string(model.config().arch->name),
                    .fingerprint = gguf::fingerprint(model.file()),
                    .quantization = main_format(model.file())};
  return manifest;
}

Result<Recording> Recording::start(const trace::RecordOptions& options,
                                   const trace::JsonlLogOptions& log, const Session& session,
                                   trace::Manifest manifest, const Request& request,
                                   const std::string& prompt_text) {
  return no_throw([&]() -> Result<Recording> {
    Recording recording;
    if (!options.folder.empty()) {
      manifest.prompt = prompt_text;
      manifest.tokens = request.prompt;
      manifest.prompt_tokens = std::ssize(request.prompt);
      manifest.sampling = to_json(request.sampling);
      manifest.forward.context_length = session.program().context_length;
      LS_TRY(recording.recorder_,
             trace::Recorder::create(session.program(), session.executor().dtype(), options,
                                     manifest));
      recording.observers_.add(recording.recorder_.get());
    }
    if (!log.file.empty()) {
      LS_TRY(recording.logger_, trace::JsonlLogger::create(session.program(), log));
      recording.observers_.add(recording.logger_.get());
    }
    return recording;
  });
}

void Recording::attach(Request& request) {
  if (observers_.empty()) return;
  request.observer = &observers_;
  request.all_logits =
      logger_ != nullptr || (recorder_ != nullptr && recorder_->wants_all_logits());
}

Result<void> Recording::finish(const std::vector<TokenId>& prompt,
                               const std::vector<TokenId>& generated, bool complete) {
  return no_throw([&]() -> Result<void> {
    if (logger_ != nullptr) LS_TRY_VOID(logger_->finish());
    if (recorder_ == nullptr) return {};
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), generated.begin(), generated.end());
    return recorder_->finish(tokens, complete);
  });
}

}  // namespace lockstep::engine
