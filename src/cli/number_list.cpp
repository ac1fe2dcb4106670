#include "cli/number_list.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kMost = 1 << 24;  // positions; also what a list may hold

std::optional<int64_t> number(std::string_view text, int64_t most) {
  int64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || value < 0 || value > most)
    return std::nullopt;
  return value;
}

// Whole numbers from 0 to `most`, separated by a comma, or spaces, or both.
Result<std::vector<int64_t>> parse_plain_list(std::string_view text, int64_t most,
                                              const char* what) {
  constexpr std::string_view kSpaces = " \t\n";
  std::vector<int64_t> out;
  for (size_t at = 0;;) {
    at = std::min(text.find_first_not_of(kSpaces, at), text.size());
    const size_t end = std::min(text.find_first_of(", \t\n", at), text.size());
    const std::string_view part = text.substr(at, end - at);
    const auto value = number(part, most);
    if (!value)
      return error("'{}': found {}, expected {} from 0 to {}", printable(text, 100),
                   part.empty() ? "nothing" : fmt::format("'{}'", printable(part, 40)), what, most);
    out.push_back(*value);
    at = std::min(text.find_first_not_of(kSpaces, end), text.size());
    if (at == text.size()) return out;
    if (text[at] == ',') ++at;
  }
}

}  // namespace

Result<std::vector<int64_t>> parse_number_list(std::string_view text) {
  std::vector<int64_t> out;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t dash = part.find('-');
    const auto first = number(part.substr(0, dash), kMost - 1);
    const auto last =
        dash == std::string_view::npos ? first : number(part.substr(dash + 1), kMost - 1);
    if (!first || !last || *last < *first)
      return error("'{}': '{}' is neither a number nor a range such as 10-20", printable(text, 100),
                   printable(part, 40));
    if (static_cast<int64_t>(out.size()) + *last - *first >= kMost)
      return error("'{}' lists too many numbers", printable(text, 100));
    for (int64_t i = *first; i <= *last; ++i) out.push_back(i);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Result<std::vector<int32_t>> parse_token_ids(std::string_view text) {
  LS_TRY(const std::vector<int64_t> numbers,
         parse_plain_list(text, std::numeric_limits<int32_t>::max(), "token ids"));
  return std::vector<int32_t>(numbers.begin(), numbers.end());
}

Result<std::vector<int64_t>> parse_counts(std::string_view text) {
  return parse_plain_list(text, int64_t{1} << 30, "whole numbers");
}

Result<std::pair<int64_t, int64_t>> parse_part(std::string_view text) {
  constexpr int64_t kMostParts = 100'000;
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    const auto index = number(text.substr(0, slash), kMostParts);
    const auto of = number(text.substr(slash + 1), kMostParts);
    if (index && of && *index >= 1 && *index <= *of) return std::pair(*index, *of);
  }
  return error("found '{}', expected a part such as 2/8, from 1/8 to 8/8", printable(text, 40));
}

}  // namespace lockstep::cli
