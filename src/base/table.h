// Rows in columns, fitted to a width.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/terminal.h"

namespace lockstep {

struct Column {
  std::string title;
  bool right = false;  // numbers
  int drop = 0;      // where the width will not do, the column with the highest goes first; 0 stays
  bool cut = false;  // may be shortened, the widest first, down to kNarrowest
};

class Table {
 public:
  static constexpr int64_t kNarrowest = 12;

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell a column, printable (text.h) and without colours.
  void add(std::vector<std::string> cells);

  // Lines of at most `width` characters, except where even the narrowest columns need more.
  std::string render(int64_t width, const Paint& paint) const;

 private:
  std::vector<int64_t> fit(int64_t width) const;  // widths of the columns; 0: dropped

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep
