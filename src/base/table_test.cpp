#include "base/table.h"

#include <sstream>

#include <gtest/gtest.h>

#include "base/text.h"

namespace lockstep {
namespace {

const Paint kPlain(false);

Table example() {
  Table table({{"name", false, 0, true}, {"type", false, 1}, {"bytes", true, 2}});
  table.add({"blk.0.attn_norm.weight", "F32", "3584"});
  table.add({"é", "Q4_K", "12"});
  return table;
}

TEST(Table, ColumnsLineUp) {
  EXPECT_EQ(example().render(80, kPlain),
            "name                    type  bytes\n"
            "blk.0.attn_norm.weight  F32    3584\n"
            "é                       Q4_K     12\n");
}

TEST(Table, CutsFirstThenDropsColumns) {
  EXPECT_EQ(example().render(30, kPlain),
            "name               type  bytes\n"
            "blk.0.attn_norm.…  F32    3584\n"
            "é                  Q4_K     12\n");
  EXPECT_EQ(example().render(20, kPlain),
            "name          type\n"
            "blk.0.attn_…  F32\n"
            "é             Q4_K\n");
  EXPECT_EQ(example().render(1, kPlain),
            "name\n"
            "blk.0.attn_…\n"
            "é\n");
}

TEST(Table, NeverWiderThanAsked) {
  for (int64_t width = Table::kNarrowest; width < 60; ++width) {
    std::istringstream lines(example().render(width, kPlain));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(utf8_length(line), width) << line;
  }
}

TEST(Table, ColoursOnlyWhenOn) {
  EXPECT_EQ(example().render(80, kPlain).find('\033'), std::string::npos);
  EXPECT_NE(example().render(80, Paint(true)).find("\033[2mname"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
