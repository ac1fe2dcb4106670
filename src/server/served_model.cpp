#include "server/served_model.h"

#include <filesystem>
#include <random>

#include "engine/recording.h"

namespace lockstep::server {
namespace {

// A prompt has at most 32,768 characters; a longer cache would mostly stay empty.
constexpr int64_t kLongestContext = 32'768;

// Of 53 bits: what is told as JSON comes through JavaScript unharmed.
uint64_t any_seed() {
  std::random_device source;
  return (uint64_t{source()} << 32 | source()) >> 11;
}

}  // namespace

Result<std::unique_ptr<ServedModel>> ServedModel::load(const std::string& path,
                                                       const exec::Device& device,
                                                       const exec::Options& options,
                                                       int64_t context, bool map) {
  auto served = std::make_unique<ServedModel>();
  served->name = std::filesystem::path(path).stem().string();
  LS_TRY(model::Model model, model::Model::load(path, map));
  served->model = std::make_unique<model::Model>(std::move(model));
  const gguf::File& file = served->model->file();
  auto tokenizer = tokenizer::Tokenizer::load(file);
  if (!tokenizer.ok())
    return error("{}; a worker needs a tokenizer, since prompts are text",
                 tokenizer.error().message);
  served->tokenizer = *std::move(tokenizer);
  auto chat = tokenizer::ChatPrompt::load(file, *served->tokenizer);
  if (chat.ok())
    served->chat = *std::move(chat);
  else
    served->no_chat = chat.error().message;
  if (context == 0) context = std::min(served->model->config().context_length, kLongestContext);
  LS_TRY(engine::Session session, engine::Session::create(*served->model, served->tokenizer.get(),
                                                          device, options, context));
  served->session = std::make_unique<engine::Session>(std::move(session));
  served->manifest = engine::describe(*served->model, device, served->session->executor());
  return served;
}

std::optional<ApiError> ServedModel::prepare(const JobFields& fields, engine::Request& out,
                                             std::string& prompt_text) const {
  const bool conversation = !fields.messages.is_null();
  const char* field = conversation ? "messages" : "prompt";
  const auto refused = [&](const std::string& message) {
    return ApiError{400, "INVALID_FIELD", fmt::format("request: {}: {}", field, message), field};
  };
  if (conversation) {
    if (!chat) return refused(no_chat);
    Result<tokenizer::ChatText> rendered = chat->render(fields.messages);
    if (!rendered.ok()) return refused(rendered.error().message);
    prompt_text = std::move(rendered->text);
    out.prompt = std::move(rendered->tokens);
  } else if (!fields.prompt_tokens.empty()) {
    out.prompt = fields.prompt_tokens;
    for (const engine::TokenId id : out.prompt)
      if (id >= vocabulary())
        return refused(fmt::format("token {} is outside the vocabulary of {}", id, vocabulary()));
  } else {
    prompt_text = fields.prompt;
    out.prompt = tokenizer->encode(fields.prompt);
  }
  const int64_t size = std::ssize(out.prompt);
  if (size == 0) return refused("it has no tokens; the model needs at least one");
  if (size > context_length())
    return refused(
        fmt::format("found {} tokens, expected at most {}, the context", size, context_length()));
  out.max_tokens = fields.max_tokens;
  out.sampling = fields.sampling;
  if (!fields.seeded) out.sampling.seed = any_seed();
  out.stops = fields.stops;
  out.ignore_end = fields.ignore_end;
  out.logprobs = fields.logprobs;
  return std::nullopt;
}

}  // namespace lockstep::server
