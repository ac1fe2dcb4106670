#include "jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "jinja/text.h"

namespace lockstep::jinja {

namespace {

bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

// One kind of line end, and not the last one: both as Jinja does it.
std::string normalize_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_text();
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }

  Place place_of(size_t offset) {
    // Offsets only grow, so lines are counted once over the whole text.
    for (; counted_ < offset; ++counted_) {
      if (source_[counted_] == '\n') {
        ++line_;
        line_start_ = counted_ + 1;
      }
    }
    return {line_, static_cast<int32_t>(offset - line_start_) + 1};
  }

  Token& add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, place_of(at_), std::move(text)});
    return tokens_.back();
  }

  [[noreturn]] void fail_here(std::string message) {
    throw TemplateError{std::move(message), place_of(at_)};
  }

  void skip_space() { at_ = source_.size() - strip(rest(), Side::kLeft).size(); }

  // Text up to the next tag, then that tag.
  void lex_text() {
    size_t open = at_;
    while ((open = source_.find('{', open)) != std::string::npos) {
      const char next = open + 1 < source_.size() ? source_[open + 1] : ' ';
      if (next == '%' || next == '{' || next == '#') break;
      ++open;
    }
    if (open == std::string::npos) {
      add(TokenKind::kText, source_.substr(at_));
      at_ = source_.size();
      return;
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : ' ';
    add_text(std::string_view(source_).substr(at_, open - at_), sign, kind != '{');
    at_ = open;
    if (kind == '#') return lex_comment();
    if (kind == '%' && lex_raw()) return;
    add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kOutputBegin);
    at_ += sign == '-' || sign == '+' ? 3 : 2;
    lex_tag(kind == '%');
  }

  // Text before a tag: "-" takes all white space at its end, otherwise lstrip_blocks takes the
  // indentation of a tag that comes first on its line.
  void add_text(std::string_view text, char sign, bool is_block) {
    if (sign == '-') {
      text = strip(text, Side::kRight);
    } else if (sign != '+' && is_block) {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      const bool at_line_start = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
      if (at_line_start && strip(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenKind::kText, std::string(text));
  }

  // The end of a block or comment whose mark (such as "%}") is `mark`, with an optional sign
  // before it and the white space that goes with it. False where it is not here.
  bool lex_end(std::string_view mark, bool trims_newline) {
    const char sign = at_ < source_.size() ? source_[at_] : ' ';
    const bool has_sign =
        (sign == '-' || (sign == '+' && trims_newline)) && rest().substr(1).starts_with(mark);
    if (!has_sign && !next_is(mark)) return false;
    at_ += mark.size() + (has_sign ? 1 : 0);
    if (has_sign && sign == '-') {
      skip_space();
    } else if (!has_sign && trims_newline && next_is("\n")) {
      ++at_;
    }
    return true;
  }

  void lex_comment() {
    const size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) fail_here("a comment that does not end");
    const char sign = source_[end - 1];
    at_ = (sign == '-' || sign == '+') && end > at_ + 2 ? end - 1 : end;
    lex_end("#}", true);
  }

  bool lex_raw() {
    const size_t start = at_;
    at_ += 2;
    if (next_is("-") || next_is("+")) ++at_;
    skip_space();
    const bool named = next_is("raw") && !(rest().size() > 3 &&
                                           (starts_name(rest()[3]) || is_ascii_digit(rest()[3])));
    if (named) {
      at_ += 3;
      skip_space();
      if (lex_end("%}", false)) {
        lex_raw_body(start);
        return true;
      }
    }
    at_ = start;
    return false;
  }

  void lex_raw_body(size_t start) {
    for (size_t end = at_; (end = source_.find("{%", end)) != std::string::npos; end += 2) {
      const size_t body = at_;
      at_ = end + 2;
      const char sign = at_ < source_.size() ? source_[at_] : ' ';
      if (sign == '-' || sign == '+') ++at_;
      skip_space();
      if (next_is("endraw")) {
        at_ += 6;
        skip_space();
        if (lex_end("%}", true)) {
          const size_t after = at_;
          at_ = body;
          add_text(std::string_view(source_).substr(body, end - body), sign, true);
          at_ = after;
          return;
        }
      }
      at_ = body;
    }
    at_ = start;
    fail_here("a raw block that does not end");
  }

  void lex_tag(bool is_block) {
    const Place start = place_of(at_);
    std::vector<char> open;  // closing brackets that are waited for
    for (;;) {
      skip_space();
      if (at_ >= source_.size()) {
        throw TemplateError{is_block ? "a '{%' that is not closed" : "a '{{' that is not closed",
                            start};
      }
      if (open.empty()) {
        const Place place = place_of(at_);
        if (lex_end(is_block ? "%}" : "}}", is_block)) {
          tokens_.push_back({is_block ? TokenKind::kBlockEnd : TokenKind::kOutputEnd, place});
          return;
        }
      }
      lex_expression(open);
    }
  }

  void lex_expression(std::vector<char>& open) {
    const char c = source_[at_];
    if (starts_name(c)) return lex_name();
    if (is_ascii_digit(c)) return lex_number();
    if (c == '"' || c == '\'') return lex_string(c);
    static constexpr std::string_view kOperators[] = {
        "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
        ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ",", ".", ":", "|", ";"};
    const auto found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                    [&](std::string_view text) { return next_is(text); });
    if (found == std::end(kOperators)) fail_here(fmt::format("unexpected character '{}'", c));
    if (c == '(') open.push_back(')');
    if (c == '[') open.push_back(']');
    if (c == '{') open.push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail_here(fmt::format("unexpected '{}'", c));
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(*found));
    at_ += found->size();
  }

  void lex_name() {
    size_t end = at_;
    while (end < source_.size() && (starts_name(source_[end]) || is_ascii_digit(source_[end]))) {
      ++end;
    }
    add(TokenKind::kName, source_.substr(at_, end - at_));
    at_ = end;
  }

  void lex_number();
  void lex_string(char quote);
  char32_t lex_hex(size_t& at, size_t end, size_t digits);
  std::string unescape(size_t at, size_t end);

  std::string source_;
  size_t at_ = 0;
  size_t counted_ = 0;  // place_of
  int32_t line_ = 1;
  size_t line_start_ = 0;
  std::vector<Token> tokens_;
};

void Lexer::lex_number() {
  std::string digits;
  size_t end = at_;
  bool real = false;
  const auto take_digits = [&] {
    for (; end < source_.size() && (is_ascii_digit(source_[end]) || source_[end] == '_'); ++end) {
      if (source_[end] != '_') digits += source_[end];
    }
  };
  const auto digit_at = [&](size_t i) { return i < source_.size() && is_ascii_digit(source_[i]); };
  if (source_[at_] == '0' && at_ + 1 < source_.size() &&
      std::string_view("xXoObB").find(source_[at_ + 1]) != std::string_view::npos) {
    fail_here("numbers in base 2, 8 or 16 are not supported");
  }
  take_digits();
  // "1.5" is a float, "a.0.b" and "1.x" are attributes.
  const bool after_dot = !tokens_.empty() && tokens_.back().is(".");
  if (!after_dot && end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
    real = true;
    digits += source_[end++];
    take_digits();
  }
  if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
    const size_t sign =
        end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
    if (digit_at(end + 1 + sign)) {
      real = true;
      digits += 'e';
      if (sign) digits += source_[end + 1];
      end += 1 + sign;
      take_digits();
    }
  }
  Token& token = add(real ? TokenKind::kFloat : TokenKind::kInteger, digits);
  const char* last = digits.data() + digits.size();
  const auto outcome = real ? std::from_chars(digits.data(), last, token.real)
                            : std::from_chars(digits.data(), last, token.integer);
  if (outcome.ec != std::errc() || outcome.ptr != last) {
    fail_here(fmt::format("the number {} is out of range", digits));
  }
  at_ = end;
}

void Lexer::lex_string(char quote) {
  size_t end = at_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) fail_here("a string that does not end");
  add(TokenKind::kString, unescape(at_ + 1, end));
  at_ = end + 1;
}

char32_t Lexer::lex_hex(size_t& at, size_t end, size_t digits) {
  uint32_t point = 0;
  const char* first = source_.data() + at;
  const char* last = source_.data() + std::min(end, at + digits);
  const auto outcome = std::from_chars(first, last, point, 16);
  if (outcome.ptr != first + digits || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
    fail_here("a string with an escape that is no character");
  }
  at += digits;
  return point;
}

// Python's escapes; one that Python does not know stays as it is written.
std::string Lexer::unescape(size_t at, size_t end) {
  static constexpr std::string_view kCodes = "nrtbfav\\'\"";
  static constexpr std::string_view kValues = "\n\r\t\b\f\a\v\\'\"";
  std::string out;
  while (at < end) {
    const char c = source_[at++];
    if (c != '\\') {
      out += c;
      continue;
    }
    const char code = source_[at++];
    const size_t known = kCodes.find(code);
    if (code >= '0' && code <= '7') {
      uint32_t point = 0;
      const size_t last = std::min(end, at + 2);  // three digits at most
      for (--at; at < last && source_[at] >= '0' && source_[at] <= '7'; ++at) {
        point = point * 8 + static_cast<uint32_t>(source_[at] - '0');
      }
      append_point(out, point);
    } else if (known < kValues.size()) {
      out += kValues[known];
    } else if (code == 'x' || code == 'u' || code == 'U') {
      append_point(out, lex_hex(at, end, code == 'x' ? 2 : code == 'u' ? 4 : 8));
    } else if (code == 'N') {
      fail_here("the escape \\N{...} is not supported");
    } else if (code != '\n') {
      out += '\\';
      out += code;
    }
  }
  return out;
}

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kOutputBegin:
      return "'{{'";
    case TokenKind::kOutputEnd:
      return "'}}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return fmt::format("'{}'", token.text);
  }
}

std::vector<Token> tokenize(std::string_view source) {
  if (source.size() > size_t{4} << 20) fail("the template is larger than 4 MiB");
  return Lexer(normalize_lines(source)).run();
}

}  // namespace lockstep::jinja
