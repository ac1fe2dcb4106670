#include "tokenizer/chat_prompt.h"

namespace lockstep::tokenizer {
namespace {

std::string text_of(const Tokenizer& tokenizer, const std::optional<TokenId>& id) {
  return id ? std::string(tokenizer.text(*id)) : "";
}

}  // namespace

Result<ChatPrompt> ChatPrompt::load(const gguf::File& file, const Tokenizer& tokenizer) {
  const auto source = file.text("tokenizer.chat_template");
  if (!source.ok()) return error("the model has no chat template ({})", source.error().message);
  LS_TRY(ChatTemplate chat, ChatTemplate::parse(*source));
  return ChatPrompt(std::move(chat), tokenizer);
}

Result<ChatText> ChatPrompt::render(const nlohmann::ordered_json& messages) const {
  const std::string bos = text_of(*tokenizer_, tokenizer_->bos());
  ChatText chat;
  LS_TRY(chat.text, template_.render({{"messages", messages},
                                      {"add_generation_prompt", true},
                                      {"bos_token", bos},
                                      {"eos_token", text_of(*tokenizer_, tokenizer_->eos())}}));
  EncodeOptions options;
  // A template may write the first token itself: it must not stand there twice.
  if (!bos.empty() && chat.text.starts_with(bos)) options.add_special = false;
  chat.tokens = tokenizer_->encode(chat.text, options);
  return chat;
}

}  // namespace lockstep::tokenizer
