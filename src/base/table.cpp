#include "base/table.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kGap = 2;

int64_t total_width(const std::vector<int64_t>& widths) {
  int64_t total = -kGap;
  for (const int64_t width : widths) total += width > 0 ? width + kGap : 0;
  return std::max<int64_t>(total, 0);
}

std::string padded(const std::string& cell, int64_t width, bool right) {
  const std::string shown = printable(cell, width);
  const std::string blank(static_cast<size_t>(std::max<int64_t>(width - utf8_length(shown), 0)),
                          ' ');
  return right ? blank + shown : shown + blank;
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  LS_CHECK(cells.size() == columns_.size(), "{} cells in {} columns", cells.size(),
           columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<int64_t> Table::fit(int64_t width) const {
  std::vector<int64_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int64_t widest = utf8_length(columns_[i].title);
    for (const auto& row : rows_) widest = std::max(widest, utf8_length(row[i]));
    widths.push_back(std::max<int64_t>(widest, 1));
  }
  while (total_width(widths) > width) {
    // Cut what may be cut first, then give whole columns up.
    int64_t* widest = nullptr;
    for (size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i].cut && widths[i] > kNarrowest && (widest == nullptr || widths[i] > *widest))
        widest = &widths[i];
    if (widest != nullptr) {
      --*widest;
      continue;
    }
    size_t victim = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i)
      if (widths[i] > 0 && columns_[i].drop > 0 &&
          (victim == columns_.size() || columns_[i].drop > columns_[victim].drop))
        victim = i;
    if (victim == columns_.size()) break;
    widths[victim] = 0;
  }
  return widths;
}

std::string Table::render(int64_t width, const Paint& paint) const {
  const std::vector<int64_t> widths = fit(width);
  const auto line = [&](const auto& cell_of) {
    std::string out;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (widths[i] == 0) continue;
      if (!out.empty()) out += std::string(kGap, ' ');
      out += padded(cell_of(i), widths[i], columns_[i].right);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  };
  std::string out = paint.dim(line([&](size_t i) { return columns_[i].title; })) + "\n";
  for (const auto& row : rows_) out += line([&](size_t i) { return row[i]; }) + "\n";
  return out;
}

}  // namespace lockstep
