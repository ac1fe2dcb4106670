// What the headers of an HTTP answer mean to a download.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::models {

// Whether "If-Range: VALIDATOR" is allowed: not for weak ETags (W/"...").
bool may_condition_range(const std::string& validator);

struct ContentRange {
  int64_t first = 0;  // 0 for "bytes */TOTAL"
  int64_t total = 0;
};

// "bytes FIRST-LAST/TOTAL" or "bytes */TOTAL"; nothing for any other text, an unknown total ("*")
// included, since bytes that belong to a file of unknown size cannot be checked.
std::optional<ContentRange> parse_content_range(std::string_view text);

// " (not found)" and the like, "" for statuses that say nothing to users.
std::string_view status_text(long status);

}  // namespace lockstep::models
