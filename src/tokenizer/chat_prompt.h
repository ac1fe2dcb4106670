// A conversation as the prompt of a model: its own template, from its own file.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "gguf/file.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::tokenizer {

struct ChatText {
  std::string text;  // as the tokenizer saw it
  std::vector<TokenId> tokens;
};

class ChatPrompt {
 public:
  // Error where the file has no template, or one that is not supported. The tokenizer must outlive
  // the object.
  static Result<ChatPrompt> load(const gguf::File& file, const Tokenizer& tokenizer);

  // `messages`: [{role, content}], in order. What the model is to answer comes next.
  Result<ChatText> render(const nlohmann::ordered_json& messages) const;

 private:
  ChatPrompt(ChatTemplate chat, const Tokenizer& tokenizer)
      : template_(std::move(chat)), tokenizer_(&tokenizer) {}

  ChatTemplate template_;
  const Tokenizer* tokenizer_;
};

}  // namespace lockstep::tokenizer
