#include "cli/completion.h"

namespace lockstep::cli {

std::vector<std::string> shell_words(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool started = false;  // '' is a word too
  const auto end_word = [&] {
    if (started || !word.empty()) words.push_back(word);
    word.clear();
    started = false;
  };
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\'' || c == '"') {
      started = true;
      for (++i; i < line.size() && line[i] != c; ++i) {
        // Within double quotes a backslash stands for itself but before these.
        const bool escape = c == '"' && line[i] == '\\' && i + 1 < line.size() &&
                            std::string_view("\"\\$`").find(line[i + 1]) != std::string_view::npos;
        word += line[escape ? ++i : i];
      }
    } else if (c == '\\') {
      if (i + 1 < line.size()) word += line[++i];
    } else if (c == ' ' || c == '\t' || c == '\n') {
      end_word();
      if (c == '\n') words.clear();
    } else if (c == ';' || c == '|' || c == '&' || c == '(') {  // another command begins
      words.clear();
      word.clear();
      started = false;
    } else {
      word += c;
    }
  }
  words.push_back(word);
  // Variables that are set for the command alone are no part of it.
  while (words.size() > 1 && words[0].find('=') != std::string::npos && words[0][0] != '-')
    words.erase(words.begin());
  return words;
}

}  // namespace lockstep::cli
