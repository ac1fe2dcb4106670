// Renders a chat template for tests that compare with Python's Jinja. Standard input: one JSON
// object {template, context} a line; standard output: one {text} or {error} a line.
#include <iostream>
#include <string>

#include "tokenizer/chat_template.h"

int main() {
  using lockstep::tokenizer::ChatTemplate;
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = nlohmann::ordered_json::parse(line, nullptr, false);
    if (!request.is_object() || !request.contains("template") || !request["template"].is_string() ||
        !request.contains("context")) {
      std::cerr << "render_chat: expected a JSON object with 'template' and 'context'\n";
      return 2;
    }
    nlohmann::ordered_json answer;
    auto chat = ChatTemplate::parse(request["template"].get<std::string>());
    if (chat.ok()) {
      const auto text = chat->render(request["context"]);
      if (text.ok()) {
        answer["text"] = *text;
      } else {
        answer["error"] = text.error().message;
      }
    } else {
      answer["error"] = chat.error().message;
    }
    std::cout << answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
