#include "engine/stop.h"

#include <algorithm>
#include <utility>

namespace lockstep::engine {
namespace {

// The longest end of `text` that is a beginning of `stop`.
size_t overlap(std::string_view text, std::string_view stop) {
  for (size_t size = std::min(text.size(), stop.size() - 1); size > 0; --size)
    if (text.ends_with(stop.substr(0, size))) return size;
  return 0;
}

}  // namespace

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string StopFilter::push(std::string_view text) {
  if (stopped_) return "";
  held_ += text;
  // The first to be complete counts, the longest of those that end together; so the result does
  // not depend on how the text was cut into pieces.
  size_t first = std::string::npos;
  size_t end = std::string::npos;
  size_t hold = 0;
  for (const std::string& stop : stops_) {
    hold = std::max(hold, overlap(held_, stop));
    const size_t found = held_.find(stop);
    if (found == std::string::npos) continue;
    if (std::pair(found + stop.size(), found) < std::pair(end, first)) {
      first = found;
      end = found + stop.size();
    }
  }
  stopped_ = first != std::string::npos;
  const size_t shown = stopped_ ? first : held_.size() - hold;
  std::string out = held_.substr(0, shown);
  held_ = stopped_ ? "" : held_.substr(shown);
  return out;
}

std::string StopFilter::finish() {
  return std::exchange(held_, "");
}

}  // namespace lockstep::engine
