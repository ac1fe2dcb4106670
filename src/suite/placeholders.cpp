#include "suite/placeholders.h"

#include <functional>

namespace lockstep::suite {
namespace {

// Calls `on_text` and `on_word` for the parts of a text in turn.
void walk_braces(std::string_view text, const std::function<void(std::string_view)>& on_text,
                 const std::function<void(std::string_view)>& on_word) {
  size_t begin = 0;
  for (size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
    size_t end = at + 1;
    while (end < text.size() && ((text[end] >= 'a' && text[end] <= 'z') || text[end] == '_')) ++end;
    if (end == at + 1 || end >= text.size() || text[end] != '}') continue;
    on_text(text.substr(begin, at - begin));
    on_word(text.substr(at + 1, end - at - 1));
    begin = end + 1;
    at = end;
  }
  on_text(text.substr(begin));
}

}  // namespace

std::vector<std::string> placeholders() {
  return {"model", "tokens", "prompt", "n", "trace", "checkpoints"};
}

std::vector<std::string> words_in_braces(std::string_view text) {
  std::vector<std::string> out;
  walk_braces(
      text, [](std::string_view) {}, [&](std::string_view word) { out.emplace_back(word); });
  return out;
}

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

std::string fill(std::string_view text, const std::map<std::string, std::string>& values,
                 bool quoted) {
  std::string out;
  walk_braces(
      text, [&](std::string_view part) { out += part; },
      [&](std::string_view word) {
        const auto found = values.find(std::string(word));
        if (found == values.end())
          out += fmt::format("{{{}}}", word);
        else
          out += quoted ? shell_quoted(found->second) : found->second;
      });
  return out;
}

}  // namespace lockstep::suite
