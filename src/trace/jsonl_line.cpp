#include "trace/jsonl_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/lower.h"
#include "base/text.h"
#include "lockstep/detail/limits.h"

namespace lockstep::trace {
namespace {

constexpr int kDeepest = 64;
constexpr int64_t kLargestIndex = detail::kMostWidth;
constexpr std::string_view kPosition = "a position: a whole number from 0 to 16777215";
static_assert(detail::kMostPositions == 16777216);
constexpr size_t kMostDims = 8;

// Thrown out of the parser to read_jsonl_line, nowhere else.
struct Bad {
  size_t at;
  std::string message;
  std::string way = {};  // as in JsonlProblem
};

class LineParser {
 public:
  explicit LineParser(std::string_view text) : text_(text) {}

  size_t at() const { return at_; }
  std::string_view text(size_t begin, size_t end) const { return text_.substr(begin, end - begin); }
  bool at_end() const { return at_ >= text_.size(); }

  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  [[noreturn]] void bad(std::string_view expected) const {
    if (at_end()) throw Bad{at_, fmt::format("the line ends, expected {}", expected)};
    throw Bad{at_,
              fmt::format("found '{}', expected {}", printable(text_.substr(at_), 16), expected),
              fmt::format("expected {}", expected)};
  }

  void take(char c, std::string_view expected) {
    if (peek() != c || at_end()) bad(expected);
    ++at_;
  }

  bool take_if(char c) {
    if (peek() != c || at_end()) return false;
    ++at_;
    return true;
  }

  std::string string() {
    take('"', "a string");
    std::string out;
    while (true) {
      if (at_end()) bad("the end of a string");
      const char c = text_[at_];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) bad("no control character in a string");
      if (c == '\\')
        escape(out);
      else
        out += c, ++at_;
    }
    ++at_;
    return out;
  }

  // A number, or a word that stands for one. The text of it is read already where it was a string.
  double number(JsonlRecord& record) {
    const char c = peek();
    const size_t start = at_;
    if (c == '"') {
      const std::string text = string();
      const std::optional<double> value = number_of(text, record);
      if (!value)
        throw Bad{start, fmt::format("found '{}', expected a number", printable(text, 40)),
                  "expected a number"};
      return *value;
    }
    size_t end = at_;
    while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 ||
                                  text_[end] == '+' || text_[end] == '-' || text_[end] == '.'))
      ++end;
    const std::string_view word = text_.substr(at_, end - at_);
    // A number at the very end of the text may have lost its last digits.
    if (end == text_.size()) at_ = end, bad("the end of a number");
    const std::optional<double> value = number_of(word, record);
    if (!value) bad("a number");
    at_ = end;
    return *value;
  }

  void skip(int depth = 0) {
    if (depth > kDeepest) throw Bad{at_, fmt::format("nested more than {} deep", kDeepest)};
    const char c = peek();
    if (c == '"') {
      string();
    } else if (c == '{') {
      object([&](const std::string&) { skip(depth + 1); });
    } else if (c == '[') {
      array([&] { skip(depth + 1); });
    } else {
      const size_t start = at_;
      while (!at_end() && text_[at_] != ',' && text_[at_] != '}' && text_[at_] != ']' &&
             text_[at_] != ' ')
        ++at_;
      if (at_ == start) bad("a value");
    }
  }

  template <class OnField>
  void object(const OnField& on_field) {
    take('{', "'{'");
    if (take_if('}')) return;
    do {
      if (peek() != '"') bad("the name of a field");
      const std::string name = string();
      take(':', "':'");
      on_field(name);
    } while (take_if(','));
    take('}', "',' or '}'");
  }

  template <class OnItem>
  void array(const OnItem& on_item) {
    take('[', "'['");
    if (take_if(']')) return;
    do on_item();
    while (take_if(','));
    take(']', "',' or ']'");
  }

 private:
  void escape(std::string& out) {
    if (at_ + 1 >= text_.size()) at_ = text_.size(), bad("the rest of an escape");
    constexpr std::string_view kFrom = "\"\\/bfnrt";
    constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    const char c = text_[at_ + 1];
    if (c != 'u') {
      const size_t which = kFrom.find(c);
      if (which == std::string_view::npos) bad("a JSON escape");
      out += kTo[which];
      at_ += 2;
      return;
    }
    uint32_t code = hex4(at_ + 2);
    at_ += 6;
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
      const uint32_t low = hex4(at_ + 2);
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        at_ += 6;
      }
    }
    append_utf8(out, code);
  }

  uint32_t hex4(size_t from) {
    if (from + 4 > text_.size()) at_ = text_.size(), bad("four hexadecimal digits");
    uint32_t code = 0;
    const char* begin = text_.data() + from;
    if (std::from_chars(begin, begin + 4, code, 16).ptr != begin + 4)
      at_ = from, bad("four hexadecimal digits");
    return code;
  }

  static void append_utf8(std::string& out, uint32_t code) {
    if (code >= 0xd800 && code < 0xe000) code = 0xfffd;  // half of a pair
    const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
    if (code < 0x80) return put(code);
    if (code < 0x800) {
      put(0xc0 | code >> 6);
    } else {
      if (code < 0x10000) {
        put(0xe0 | code >> 12);
      } else {
        put(0xf0 | code >> 18);
        put(0x80 | (code >> 12 & 0x3f));
      }
      put(0x80 | (code >> 6 & 0x3f));
    }
    put(0x80 | (code & 0x3f));
  }

  static std::optional<double> number_of(std::string_view text, JsonlRecord& record) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    if (text == "null") {  // what many writers make of NaN
      ++record.stand_ins;
      return kNan;
    }
    const bool negative = text.starts_with('-');
    const std::string word = ascii_lower(text.substr(negative || text.starts_with('+') ? 1 : 0));
    if (word == "nan" || word.starts_with("nan(")) return kNan;
    if (word == "inf" || word == "infinity") return negative ? -kInfinity : kInfinity;
    if (word.empty() || !(word[0] == '.' || (word[0] >= '0' && word[0] <= '9')))
      return std::nullopt;
    double value = 0;
    const char* end = word.data() + word.size();
    const auto [rest, problem] = std::from_chars(word.data(), end, value);
    if (rest != end || problem == std::errc::invalid_argument) return std::nullopt;
    if (problem == std::errc::result_out_of_range) value = std::strtod(word.c_str(), nullptr);
    if (word == "1e308" || word == "1e+308" || word == "1.0e308" || word == "1.0e+308") {
      ++record.stand_ins;
      value = kInfinity;
    }
    record.digits = std::max(record.digits, digits_of(word));
    return negative ? -value : value;
  }

  // Significant digits as written.
  static int digits_of(std::string_view word) {
    int digits = 0;
    for (const char c : word.substr(0, word.find('e')))
      if (c >= '1' && c <= '9')
        ++digits;
      else if (c == '0' && digits > 0)
        ++digits;
    return digits;
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::optional<DType> dtype_of(std::string text) {
  text = ascii_lower(text);
  if (text.starts_with("torch.")) text = text.substr(6);
  struct Alias {
    std::string_view name;
    DType dtype;
  };
  constexpr Alias kAliases[] = {
      {"f64", DType::kF64},     {"float64", DType::kF64},   {"fp64", DType::kF64},
      {"double", DType::kF64},  {"f32", DType::kF32},       {"float32", DType::kF32},
      {"fp32", DType::kF32},    {"float", DType::kF32},     {"f16", DType::kF16},
      {"float16", DType::kF16}, {"fp16", DType::kF16},      {"half", DType::kF16},
      {"bf16", DType::kBF16},   {"bfloat16", DType::kBF16},
  };
  for (const Alias& alias : kAliases)
    if (text == alias.name) return alias.dtype;
  return std::nullopt;
}

int64_t integer(LineParser& in, int64_t most, std::string_view expected) {
  in.peek();
  const size_t start = in.at();
  JsonlRecord unused;
  const double value = in.number(unused);
  if (!(value >= 0 && value <= static_cast<double>(most)) || value != std::floor(value))
    throw Bad{start, fmt::format("found {}, expected {}", value, expected),
              fmt::format("expected {}", expected)};
  return static_cast<int64_t>(value);
}

// "[1,151936]" as a string, "(1, 151936)", or an array.
std::vector<int64_t> read_shape(LineParser& in) {
  constexpr std::string_view kExpected = "a shape such as \"[1,151936]\"";
  std::vector<int64_t> shape;
  in.peek();
  const size_t start = in.at();
  const auto add = [&](int64_t extent) {
    shape.push_back(extent);
    if (shape.size() > kMostDims)
      throw Bad{start, fmt::format("more than {} dimensions in a shape", kMostDims)};
  };
  if (in.peek() != '"') {
    in.array([&] { add(integer(in, kLargestIndex, "a size that is whole and not negative")); });
    return shape;
  }
  const std::string text = in.string();
  const auto wrong = [&] {
    return Bad{start, fmt::format("found '{}', expected {}", printable(text, 40), kExpected),
               fmt::format("expected {}", kExpected)};
  };
  std::string_view rest = text;
  const auto trim = [&] {
    while (rest.starts_with(' ')) rest.remove_prefix(1);
  };
  trim();
  if (rest.size() < 2 || !(rest[0] == '[' || rest[0] == '(')) throw wrong();
  const char closing = rest[0] == '[' ? ']' : ')';
  rest.remove_prefix(1);
  while (true) {
    trim();
    if (rest.starts_with(closing)) break;
    int64_t extent = 0;
    const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), extent);
    if (problem != std::errc() || extent < 0 || extent > kLargestIndex) throw wrong();
    add(extent);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    trim();
    if (rest.starts_with(','))
      rest.remove_prefix(1);
    else if (!rest.starts_with(closing))
      throw wrong();
  }
  if (rest.size() != 1) throw wrong();
  return shape;
}

void read_values(LineParser& in, JsonlRecord& record, int depth = 0) {
  if (depth > kDeepest) throw Bad{in.at(), fmt::format("nested more than {} deep", kDeepest)};
  in.array([&] {
    if (in.peek() == '[')
      read_values(in, record, depth + 1);
    else
      record.values.push_back(in.number(record));
  });
}

// What is said for people only; anything but a string is kept as it was written.
std::string any_text(LineParser& in) {
  if (in.peek() == '"') return in.string();
  const size_t start = in.at();
  in.skip();
  return std::string(in.text(start, in.at()));
}

}  // namespace

LineOutcome read_jsonl_line(std::string_view line) {
  LineOutcome outcome;
  const auto problem = [&](size_t at, std::string message, bool kept, std::string way) {
    outcome.problems.push_back(
        {0, static_cast<int64_t>(at) + 1, std::move(message), false, kept, std::move(way)});
  };
  JsonlRecord record;
  LineParser in(line);
  bool has_checkpoint = false, has_position = false, has_values = false;
  try {
    in.peek();
    in.object([&](const std::string& field) {
      if (field == "checkpoint") {
        in.peek();
        const size_t start = in.at();
        record.checkpoint = checkpoint_name(in.string());
        if (!detail::is_name(record.checkpoint))
          throw Bad{start,
                    fmt::format("found the name '{}', expected {}",
                                printable(record.checkpoint, 40), detail::kNameRule),
                    "a name that is none"};
        has_checkpoint = true;
      } else if (field == "token_idx") {
        record.position = integer(in, detail::kMostPositions - 1, kPosition);
        has_position = true;
      } else if (field == "values") {
        record.values.clear();
        read_values(in, record);
        has_values = true;
      } else if (field == "team") {
        record.team = any_text(in);
      } else if (field == "dtype") {
        in.peek();
        const size_t start = in.at();
        const std::string name = in.string();
        record.dtype = dtype_of(name);
        if (!record.dtype)
          problem(start, fmt::format("dtype '{}' is not known; taken as f32", printable(name, 40)),
                  true, "a dtype that is not known");
      } else if (field == "shape") {
        record.shape = read_shape(in);
      } else if (field == "ts") {
        record.ts = any_text(in);
      } else if (field == "source") {
        record.source = any_text(in);
      } else {
        in.skip();
      }
    });
    if (in.peek() != '\0' || !in.at_end()) in.bad("the end of the line");
    if (!has_checkpoint) throw Bad{0, "no field 'checkpoint'"};
    if (!has_position) throw Bad{0, "no field 'token_idx'"};
    if (!has_values) throw Bad{0, "no field 'values'"};
    if (record.values.empty()) throw Bad{0, "'values' is empty"};
    int64_t size = 1;
    for (const int64_t extent : record.shape)
      if (__builtin_mul_overflow(size, extent, &size) || size > detail::kMostWidth)
        throw Bad{0, "'shape' is too large"};
    if (!record.shape.empty() && size < static_cast<int64_t>(record.values.size()))
      throw Bad{0, fmt::format("{} values for a shape of {}", record.values.size(), size),
                "more values than the shape has"};
    outcome.record = std::move(record);
  } catch (const Bad& bad) {
    outcome.at_end = in.at_end() && bad.at >= line.size();
    problem(bad.at, bad.message, false, bad.way);
  }
  return outcome;
}

}  // namespace lockstep::trace
