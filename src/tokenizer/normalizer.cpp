#include "tokenizer/normalizer.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <utf8proc.h>

#include "tokenizer/charsmap.h"
#include "tokenizer/text_changes.h"
#include "tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

enum class Kind : uint8_t {
  kForm,  // one of Unicode's normal forms
  kLowercase,
  kStripAccents,
  kStrip,
  kReplace,
  kMergeSpaces,  // the one pattern that occurs: runs of spaces
  kPrepend,
  kNmt,
  kPrecompiled,
};

// Base64 as in RFC 4648, or nothing where it is none.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6U) | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>((bits >> static_cast<unsigned>(count)) & 0xffU);
  }
  return out;
}

Result<bool> flag(const JsonReader& reader, bool otherwise) {
  return reader.present() ? reader.boolean() : Result<bool>(otherwise);
}

}  // namespace

struct Normalizer::Step {
  Kind kind;
  utf8proc_option_t options = {};    // of a form
  std::string from = {}, to = {};    // of replacing; what to prepend
  bool left = false, right = false;  // of stripping
  std::optional<Charsmap> map = {};
  std::string map_bytes = {};

  static Result<Step> read(const JsonReader& part, const std::string& type);
  std::string apply(std::string_view text) const;
  double growth() const;  // how many times as long a text can become
};

namespace {

Result<void> add_steps(const JsonReader& part, std::vector<Normalizer::Step>& out) {
  if (!part.present()) return {};
  LS_TRY(const std::string type, part["type"].text());
  if (type != "Sequence") {
    LS_TRY(Normalizer::Step step, Normalizer::Step::read(part, type));
    out.push_back(std::move(step));
    return {};
  }
  LS_TRY(const std::vector<JsonReader> items, part["normalizers"].items());
  for (const JsonReader& item : items) LS_TRY_VOID(add_steps(item, out));
  return {};
}

}  // namespace

Result<Normalizer::Step> Normalizer::Step::read(const JsonReader& part, const std::string& type) {
  const struct {
    std::string_view name;
    int options;
  } forms[] = {{"NFC", UTF8PROC_COMPOSE},
               {"NFD", UTF8PROC_DECOMPOSE},
               {"NFKC", UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
               {"NFKD", UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  for (const auto& form : forms)
    if (type == form.name)
      return Step{Kind::kForm, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form.options)};
  if (type == "Lowercase") return Step{Kind::kLowercase};
  if (type == "StripAccents") return Step{Kind::kStripAccents};
  if (type == "Nmt") return Step{Kind::kNmt};
  if (type == "Strip") {
    Step step{Kind::kStrip};
    LS_TRY(step.left, flag(part["strip_left"], true));
    LS_TRY(step.right, flag(part["strip_right"], true));
    return step;
  }
  if (type == "Prepend") {
    Step step{Kind::kPrepend};
    LS_TRY(step.to, part["prepend"].text());
    return step;
  }
  if (type == "Replace") {
    Step step{Kind::kReplace};
    LS_TRY(step.to, part["content"].text());
    if (part["pattern"]["Regex"].present()) {
      LS_TRY(const std::string pattern, part["pattern"]["Regex"].text());
      if (pattern != " {2,}") return part["pattern"]["Regex"].wrong("\" {2,}\", or a String");
      step.kind = Kind::kMergeSpaces;
      return step;
    }
    LS_TRY(step.from, part["pattern"]["String"].text());
    if (step.from.empty()) return part["pattern"]["String"].wrong("a text that is not empty");
    return step;
  }
  if (type == "Precompiled") {
    Step step{Kind::kPrecompiled};
    const JsonReader map = part["precompiled_charsmap"];
    LS_TRY(const std::string text, map.text());
    const std::optional<std::string> bytes = from_base64(text);
    if (!bytes) return map.wrong("base64");
    auto read = Charsmap::read(*bytes, "precompiled_charsmap");
    if (!read.ok()) return map.wrong(fmt::format("a table ({})", read.error().message));
    step.map = *std::move(read);
    step.map_bytes = *bytes;
    return step;
  }
  return part["type"].wrong(
      "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, Nmt, Precompiled or "
      "Sequence");
}

double Normalizer::Step::growth() const {
  const auto ratio = [](size_t to_bytes, size_t from_bytes) {
    return std::max(1.0, static_cast<double>(to_bytes) / static_cast<double>(from_bytes));
  };
  switch (kind) {
    case Kind::kReplace:
      return ratio(to.size(), from.size());
    case Kind::kMergeSpaces:
      return ratio(to.size(), 2);
    case Kind::kPrecompiled:
      return ratio(map->longest_becomes(), 1);
    case Kind::kPrepend:
      return ratio(to.size() + 1, 1);  // each piece between added tokens gets it
    default:
      return 1;  // a form lengthens a text once
  }
}

std::string Normalizer::Step::apply(std::string_view text) const {
  switch (kind) {
    case Kind::kForm:
      return in_form(text, options);
    case Kind::kLowercase:
      return lowercase(text);
    case Kind::kStripAccents:
      return without_marks(text);
    case Kind::kStrip:
      if (left) text.remove_prefix(white_space_before(text));
      if (right) text.remove_suffix(white_space_after(text));
      break;
    case Kind::kReplace:
      return replaced(text, from, to);
    case Kind::kMergeSpaces:
      return spaces_merged(text, to);
    case Kind::kPrepend:
      return text.empty() ? "" : to + std::string(text);
    case Kind::kNmt:
      return as_nmt(text);
    case Kind::kPrecompiled:
      return by_charsmap(text, *map);
  }
  return std::string(text);
}

Normalizer::Normalizer() = default;
Normalizer::~Normalizer() = default;
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;

Result<Normalizer> Normalizer::read(const JsonReader& part) {
  Normalizer out;
  LS_TRY_VOID(add_steps(part, out.steps_));
  constexpr size_t kMostSteps = 64;  // each takes time for every text
  if (out.steps_.size() > kMostSteps)
    return part.wrong(fmt::format("at most {} steps", kMostSteps));
  // A few steps that lengthen would fill any memory.
  constexpr double kMostGrowth = 1000;
  double growth = 1;
  for (const Step& step : out.steps_) growth *= step.growth();
  if (growth > kMostGrowth)
    return part.wrong(fmt::format("steps that make a text at most {} times as long", kMostGrowth));
  return out;
}

bool Normalizer::prepends(std::string_view text) const {
  return std::ranges::any_of(
      steps_, [&](const Step& step) { return step.kind == Kind::kPrepend && step.to == text; });
}

bool Normalizer::prepends() const {
  return std::ranges::find(steps_, Kind::kPrepend, &Step::kind) != steps_.end();
}

bool Normalizer::merges_spaces() const {
  return std::ranges::find(steps_, Kind::kMergeSpaces, &Step::kind) != steps_.end();
}

std::string_view Normalizer::charsmap() const {
  const auto found = std::ranges::find(steps_, Kind::kPrecompiled, &Step::kind);
  return found == steps_.end() ? std::string_view() : found->map_bytes;
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) out = step.apply(out);
  return out;
}

}  // namespace lockstep::tokenizer
