#include "cli/number_list.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace lockstep::cli {
namespace {

constexpr int64_t kMost = 1 << 24;  // positions; also what a list may hold

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || value < 0 || value >= kMost)
    return std::nullopt;
  return value;
}

}  // namespace

Result<std::vector<int64_t>> parse_number_list(std::string_view text) {
  std::vector<int64_t> out;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t dash = part.find('-');
    const auto first = number(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (!first || !last || *last < *first)
      return error("'{}': '{}' is neither a number nor a range such as 10-20", text, part);
    if (static_cast<int64_t>(out.size()) + *last - *first >= kMost)
      return error("'{}' lists too many numbers", text);
    for (int64_t i = *first; i <= *last; ++i) out.push_back(i);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace lockstep::cli
