#include "models/http_headers.h"

#include <algorithm>
#include <charconv>

#include "base/lower.h"

namespace lockstep::models {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Digits only, at least one, no overflow.
std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, value);
  if (failed != std::errc() || stop != end || text.front() == '-') return std::nullopt;
  return value;
}

}  // namespace

bool may_condition_range(const std::string& validator) {
  // Control characters have no business in a header; the origin file may have been edited.
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  return !validator.empty() && !validator.starts_with("W/") &&
         std::none_of(validator.begin(), validator.end(), control);
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!ascii_lower(text.substr(0, kUnit.size())).starts_with(kUnit)) return std::nullopt;
  text = trim(text.substr(kUnit.size()));
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto total = parse_number(text.substr(slash + 1));
  if (!total) return std::nullopt;
  const std::string_view range = text.substr(0, slash);
  if (range == "*") return ContentRange{0, *total};
  const size_t dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_number(range.substr(0, dash));
  const auto last = parse_number(range.substr(dash + 1));
  // A range that stops before the end would need further requests; no server we know does that,
  // and asking again goes on from there.
  if (!first || !last || *first > *last || *last >= *total) return std::nullopt;
  return ContentRange{*first, *total};
}

std::string_view status_text(long status) {
  switch (status) {
    case 401:
    case 403:
      return " (not allowed: the hub may want a login or consent for this file)";
    case 404:
      return " (not found)";
    case 410:
      return " (gone)";
    case 429:
      return " (too many requests)";
    case 500:
      return " (internal server error)";
    case 503:
      return " (service unavailable)";
    default:
      return "";
  }
}

}  // namespace lockstep::models
