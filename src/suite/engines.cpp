#include "suite/engines.h"

#include <algorithm>
#include <bit>
#include <filesystem>

#include "base/memory.h"
#include "base/text.h"
#include "engine/recording.h"
#include "models/locate.h"

namespace lockstep::suite {
namespace {

namespace fs = std::filesystem;

int64_t bytes_of(const OpenModel& model) {
  int64_t bytes = 0;
  for (const gguf::Tensor& tensor : model.model.file().tensors()) bytes += std::ssize(tensor.data);
  return bytes;
}

// Positions to have room for. It may decide what the forward pass is, so it depends on nothing but
// the task; few sizes, so that an executor serves many tasks.
int64_t context_for(const Task& task) {
  const int64_t wanted = std::ssize(task.tokens) + task.n;
  const auto size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(wanted)));
  return std::min(std::max<int64_t>(size, 256), task.model->model.config().context_length);
}

bool has_vocabulary(const gguf::File& file) {
  const auto kind = file.text_or("tokenizer.ggml.model", "none");
  return !kind.ok() || (*kind != "none" && *kind != "no_vocab");
}

}  // namespace

Result<const OpenModel*> Engines::open(const std::string& model) {
  if (const auto found = models_.find(model); found != models_.end()) return found->second.get();
  std::error_code failed;
  std::string path = suite_.path(model);
  if (!fs::is_regular_file(path, failed)) {
    LS_TRY(path, models::find_model(model));
  }
  LS_TRY(model::Model loaded, model::Model::load(path));
  auto open = std::make_unique<OpenModel>(OpenModel{std::move(loaded), nullptr, path});
  if (has_vocabulary(open->model.file())) {
    LS_TRY(open->tokenizer, tokenizer::Tokenizer::load(open->model.file()));
  }
  return models_.emplace(model, std::move(open)).first->second.get();
}

void Engines::make_room(int64_t bytes, const OpenModel* keep) {
  constexpr size_t kMostLoaded = 8;  // each has threads of its own
  while (!sessions_.empty() &&
         (sessions_.size() >= kMostLoaded || available_memory_bytes() < bytes))
    sessions_.pop_back();
  constexpr size_t kMostOpen = 64;  // maps of files, mostly
  if (models_.size() <= kMostOpen) return;
  for (auto it = models_.begin(); it != models_.end();) {
    const OpenModel* model = it->second.get();
    const bool used =
        model == keep || std::ranges::find(sessions_, model, &Loaded::model) != sessions_.end();
    it = used ? std::next(it) : models_.erase(it);
  }
}

Result<engine::Session*> Engines::session(const Engine& engine, const OpenModel& model,
                                          int64_t context) {
  const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}", model.path, engine.target,
                                      engine.threads, engine.kv, context);
  if (const auto found = std::ranges::find(sessions_, key, &Loaded::key);
      found != sessions_.end()) {
    sessions_.splice(sessions_.begin(), sessions_, found);
    return &sessions_.front().session;
  }
  LS_TRY(const exec::Device* device, exec::find_device(engine.target));
  LS_TRY_VOID(device->available());
  make_room(2 * bytes_of(model), &model);
  exec::Options options;
  options.threads = static_cast<int>(engine.threads);
  if (!engine.kv.empty()) options.kv = engine.kv == "f32" ? DType::kF32 : DType::kF16;
  options.pin = false;  // several executors share the cores, and other engines too
  const auto create = [&] {
    return engine::Session::create(model.model, model.tokenizer.get(), *device, options, context);
  };
  auto made = create();
  if (!made.ok() && !sessions_.empty()) {  // they may have what it lacks, such as a GPU's memory
    sessions_.clear();
    made = create();
  }
  if (!made.ok()) return made.error();
  sessions_.push_front({key, &model, std::move(*made)});
  return &sessions_.front().session;
}

Result<void> Engines::record_device(const Engine& engine, const Task& task,
                                    const std::string& folder) {
  const int64_t limit = task.model->model.config().context_length;
  if (std::ssize(task.tokens) > limit)
    return error("the prompt has {} tokens; the model's context has {} positions",
                 task.tokens.size(), limit);
  LS_TRY(engine::Session * session, this->session(engine, *task.model, context_for(task)));
  LS_TRY(const exec::Device* device, exec::find_device(engine.target));
  engine::Request request;
  request.prompt = task.tokens;
  request.max_tokens = task.n;
  trace::RecordOptions options;
  options.folder = folder;
  options.checkpoints = task.checkpoints;
  LS_TRY(engine::Recording recording,
         engine::Recording::start(options, {}, *session,
                                  engine::describe(task.model->model, *device, session->executor()),
                                  request, task.text));
  recording.attach(request);
  LS_TRY(const engine::Outcome outcome, session->generate(request, nullptr, cancel_));
  const bool complete = outcome.reason != engine::StopReason::kCancelled;
  LS_TRY_VOID(recording.finish(request.prompt, outcome.tokens, complete));
  if (!complete) return error("was ended with the program");
  return {};
}

Result<Recorded> Engines::record(const Engine& engine, const Task& task, const std::string& folder,
                                 Failure& failure) {
  Recorded out{folder, ""};
  if (engine.kind == EngineKind::kTrace) {
    out.folder = suite_.path(engine.target);
    std::error_code failed;
    if (!fs::exists(out.folder, failed))
      return error("{}: no such trace or log", printable(out.folder));
    return out;
  }
  if (engine.kind == EngineKind::kDevice) {
    LS_TRY_VOID(record_device(engine, task, folder));
    return out;
  }
  LS_TRY(const auto command, command_of(suite_, engine, task, folder, program_));
  LS_TRY(out.output, run_program(engine, command, folder, failure));
  return out;
}

}  // namespace lockstep::suite
