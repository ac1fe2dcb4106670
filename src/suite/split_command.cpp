#include "base/text.h"
#include "suite/suite.h"

namespace lockstep::suite {

Result<std::vector<std::string>> split_command(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool started = false;  // '' is a word too
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\'' || c == '"') {
      started = true;
      const size_t begin = i;
      for (++i; i < text.size() && text[i] != c; ++i) {
        // Within double quotes a backslash stands for itself but before these.
        const bool escape = c == '"' && text[i] == '\\' && i + 1 < text.size() &&
                            std::string_view("\"\\$`").find(text[i + 1]) != std::string_view::npos;
        word += text[escape ? ++i : i];
      }
      if (i >= text.size()) return error("the quote {} at character {} has no end", c, begin + 1);
    } else if (c == '\\') {
      if (i + 1 >= text.size()) return error("a backslash ends the command");
      started = true;
      word += text[++i];
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      if (started) words.push_back(word);
      word.clear();
      started = false;
    } else if (std::string_view("|&;<>()$`").find(c) != std::string_view::npos) {
      return error("found {} at character {}, which needs a shell: quote it, or set shell = true",
                   c, i + 1);
    } else {
      started = true;
      word += c;
    }
  }
  if (started) words.push_back(word);
  if (words.empty() || words[0].empty()) return error("the command names no program");
  return words;
}

}  // namespace lockstep::suite
