#include "tokenizer/chat_template.h"

#include <utility>

#include "jinja/interpreter.h"
#include "jinja/parser.h"

namespace lockstep::tokenizer {

struct ChatTemplate::State {
  jinja::Body body;
};

namespace {

Error to_error(const jinja::TemplateError& failure) {
  if (failure.place.line == 0) return error("chat template: {}", failure.message);
  return error("chat template, line {}, column {}: {}", failure.place.line, failure.place.column,
               failure.message);
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view text) {
  try {
    auto state = std::make_unique<State>();
    state->body = jinja::Parser(jinja::tokenize(text)).parse();
    return ChatTemplate(std::move(state));
  } catch (const jinja::TemplateError& failure) {
    return to_error(failure);
  }
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& context) const {
  try {
    return jinja::Interpreter(jinja::Limits{}).run(state_->body, context);
  } catch (const jinja::TemplateError& failure) {
    return to_error(failure);
  }
}

}  // namespace lockstep::tokenizer
