#include "tokenizer/splitter.h"

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tokenizer/utf8.h"

namespace lockstep::tokenizer {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeJitStack {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

// PCRE2's own \s has U+180E besides, which Unicode does not count as white space.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Letters and numbers of Unicode 15.1 that Unicode 14 lacks. Debian's PCRE2 (10.42) knows 14; for a
// newer PCRE2 these add nothing.
constexpr std::string_view kLetters =
    R"(\p{L}\x{1123f}\x{11240}\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f})"
    R"(\x{13441}-\x{13446}\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d})"
    R"(\x{1e4d0}-\x{1e4eb}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr std::string_view kNumbers =
    R"(\p{N}\x{11f50}-\x{11f59}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9})";

// Writes the classes above in place of their short names.
std::string expand(std::string_view pattern) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {R"(\s)", kSpace}, {R"(\p{L})", kLetters}, {R"(\p{N})", kNumbers}};
  std::string expanded;
  bool in_class = false;
  while (!pattern.empty()) {
    size_t used = 0;
    for (const auto& [name, members] : kNames) {
      if (!pattern.starts_with(name)) continue;
      expanded += in_class ? std::string(members) : fmt::format("[{}]", members);
      used = name.size();
    }
    if (used == 0 && pattern.starts_with(R"(\S)")) {
      LS_CHECK(!in_class, "\\S inside a class cannot be expanded");
      expanded += fmt::format("[^{}]", kSpace);
      used = 2;
    }
    if (used == 0) {
      if (pattern[0] == '[') in_class = true;
      if (pattern[0] == ']') in_class = false;
      used = pattern[0] == '\\' ? 2 : 1;
      expanded += pattern.substr(0, used);
    }
    pattern.remove_prefix(used);
  }
  return expanded;
}

// The text where it is UTF-8; else a copy in `buffer`, every stray byte a control character. Same
// length, so places in one are places in the other.
std::string_view as_utf8(std::string_view text, std::string& buffer) {
  size_t at = 0;
  while (at < text.size()) {
    // Most text is ASCII: eight bytes at a time.
    uint64_t eight;
    while (at + sizeof eight <= text.size()) {
      memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) != 0) break;
      at += sizeof eight;
    }
    if (at == text.size()) break;
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.state != Utf8::kWhole) {
      if (buffer.empty()) buffer = text;
      buffer.replace(at, step.length, step.length, '\x01');
    }
    at += step.length;
  }
  return buffer.empty() ? text : std::string_view(buffer);
}

struct Range {
  size_t begin, end;
};

}  // namespace

struct Splitter::Pattern {
  std::unique_ptr<pcre2_code, FreeCode> code;

  // Matches within subject[range] become ranges of their own, and so does what lies between.
  void cut(std::string_view subject, Range range, pcre2_match_data* match,
           pcre2_match_context* context, std::vector<Range>& out) const {
    const auto* bytes = reinterpret_cast<PCRE2_SPTR>(subject.data()) + range.begin;
    const size_t size = range.end - range.begin;
    const size_t* place = pcre2_get_ovector_pointer(match);
    size_t done = 0;
    while (done < size) {
      // The bytes are known to be UTF-8. No match, or none within the limits of PCRE2 (which our
      // patterns stay far below): the rest is one piece.
      const int matched =
          pcre2_match(code.get(), bytes, size, done, PCRE2_NO_UTF_CHECK, match, context);
      if (matched == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
      if (matched < 0) break;
      if (place[1] <= done) break;  // an empty match cuts nothing
      if (place[0] > done) out.push_back({range.begin + done, range.begin + place[0]});
      out.push_back({range.begin + place[0], range.begin + place[1]});
      done = place[1];
    }
    if (done < size) out.push_back({range.begin + done, range.end});
  }
};

Result<Splitter> Splitter::compile(std::span<const std::string_view> patterns) {
  std::vector<Pattern> compiled;
  for (const std::string_view pattern : patterns) {
    const std::string expanded = expand(pattern);
    int code = 0;
    size_t place = 0;
    Pattern row{std::unique_ptr<pcre2_code, FreeCode>(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expanded.data()), expanded.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &code, &place, nullptr))};
    if (!row.code) {
      PCRE2_UCHAR reason[128] = {};
      pcre2_get_error_message(code, reason, sizeof reason);
      return error("pre-tokenizer pattern {}: {} at offset {}", expanded,
                   reinterpret_cast<const char*>(reason), place);
    }
    // Without the compiler (a platform that forbids it) the interpreter gives the same words.
    pcre2_jit_compile(row.code.get(), PCRE2_JIT_COMPLETE);
    compiled.push_back(std::move(row));
  }
  return Splitter(std::move(compiled));
}

Splitter::Splitter(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {}
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

std::vector<std::string_view> Splitter::split(std::string_view text) const {
  std::string buffer;
  const std::string_view subject = as_utf8(text, buffer);
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(
      pcre2_match_context_create(nullptr));
  const std::unique_ptr<pcre2_jit_stack, FreeJitStack> stack(
      pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr));
  if (!match || !context || !stack) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), UINT32_MAX);
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());

  std::vector<Range> ranges;
  if (!text.empty()) ranges.push_back({0, text.size()});
  std::vector<Range> next;
  for (const Pattern& pattern : patterns_) {
    next.clear();
    for (const Range& range : ranges) pattern.cut(subject, range, match.get(), context.get(), next);
    ranges.swap(next);
  }
  std::vector<std::string_view> words;
  words.reserve(ranges.size());
  for (const Range& range : ranges)
    words.push_back(text.substr(range.begin, range.end - range.begin));
  return words;
}

}  // namespace lockstep::tokenizer
