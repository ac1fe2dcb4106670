// Template text to tokens, with Jinja's white space rules as Hugging Face sets them
// (trim_blocks, lstrip_blocks, no trailing newline).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace lockstep::jinja {

enum class TokenKind {
  kText,  // outside of tags
  kBlockBegin,
  kBlockEnd,
  kOutputBegin,
  kOutputEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  Place place;
  std::string text = {};  // of strings: after escapes
  int64_t integer = 0;
  double real = 0;

  bool is(std::string_view symbol) const { return kind == TokenKind::kOperator && text == symbol; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// What to call a token in a message.
std::string describe(const Token& token);

// Throws TemplateError. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

}  // namespace lockstep::jinja
