// A model's chat template (Jinja, from tokenizer.chat_template), applied to a conversation.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace lockstep::tokenizer {

class ChatTemplate {
 public:
  // Error with line and column where the text is no Jinja, or uses a part that is not supported
  // (named in the message).
  static Result<ChatTemplate> parse(std::string_view text);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `context` is what templates see: messages ([{role, content}]), add_generation_prompt,
  // bos_token, eos_token, and whatever else the caller gives (tools, ...). raise_exception(...)
  // in the template becomes an error with its text.
  Result<std::string> render(const nlohmann::ordered_json& context) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::tokenizer
