// The few headers of an HTTP answer that a download looks at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::models {

struct AnswerHeaders {
  std::string etag;
  std::string last_modified;
  std::string content_range;
  std::string linked_etag;     // the hub's redirects state the SHA-256 of the file behind them
  int64_t content_length = 0;  // 0: absent

  // A line as it came, with or without its end. A status line begins a new answer.
  void add_line(std::string_view line);

  // What tells this version of the file from others: the ETag, or else Last-Modified.
  const std::string& validator() const { return etag.empty() ? last_modified : etag; }
};

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
