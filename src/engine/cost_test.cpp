#include "engine/cost.h"

#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep::engine {
namespace {

op::Weight weight(quant::Format format, int64_t rows, int64_t columns) {
  op::Weight made;
  made.format = &quant::info(format);
  made.rows = rows;
  made.columns = columns;
  return made;
}

op::Program program_of(std::vector<op::Op> ops) {
  op::Program program;
  program.ops = std::move(ops);
  return program;
}

op::Op attention_op(int64_t window) {
  op::Attention attention;
  attention.heads = 6;
  attention.kv_heads = 2;
  attention.head_size = 7;
  attention.value_size = 5;
  attention.window = window;
  return {attention, {}, {}, 0};
}

// Token by token, as the definition says.
int64_t positions_seen(int64_t window, int64_t tokens) {
  int64_t seen = 0;
  for (int64_t position = 0; position < tokens; ++position)
    seen += window > 0 ? std::min(window, position + 1) : position + 1;
  return seen;
}

TEST(Cost, ATokenReadsOneRowOfTablesAndAllOfTheRest) {
  using quant::Format;
  const op::Embed tokens{weight(Format::kQ4_K, 1000, 512), op::Embed::Index::kToken};
  const op::Embed positions{weight(Format::kF32, 64, 512), op::Embed::Index::kPosition};
  op::Norm norm;
  norm.weight = weight(Format::kF32, 1, 512);
  norm.bias = weight(Format::kF16, 1, 512);
  const op::Linear linear{weight(Format::kQ8_0, 96, 512), weight(Format::kF32, 1, 96)};
  const op::Linear output{weight(Format::kQ6_K, 1000, 512), std::nullopt};
  op::Program program = program_of({{tokens, {}, {0}, -1},
                                    {positions, {}, {1}, -1},
                                    {op::Add{}, {0, 1}, {2}, -1},
                                    {norm, {2}, {3}, 0},
                                    {linear, {3}, {4}, 0},
                                    {output, {3}, {5}, -1}});
  program.head = 5;
  const Traffic traffic = generation_traffic(program, 9, "f16");
  EXPECT_EQ(traffic.weight_bytes,
            2 * 144 + 4 * 512 + (4 + 2) * 512 + 96 * 16 * 34 + 4 * 96 + 1000 * 2 * 210);
  EXPECT_EQ(traffic.kv_bytes, 0);
  EXPECT_EQ(traffic.bytes(), static_cast<double>(traffic.weight_bytes));
  // The output serves the last token alone.
  EXPECT_EQ(prompt_multiply_adds(program, 9), 9.0 * 96 * 512 + 1000 * 512);
  // Which matrix is the output's is what the program says, wherever the matrix stands.
  program.head = 4;
  EXPECT_EQ(prompt_multiply_adds(program, 9), 96 * 512 + 9.0 * 1000 * 512);
  program.head = -1;
  EXPECT_EQ(prompt_multiply_adds(program, 9), 9.0 * (96 + 1000) * 512);
}

TEST(Cost, AttentionCountsThePositionsThatItSees) {
  for (const int64_t window : {0, 1, 7, 100}) {
    for (const int64_t tokens : {1, 6, 7, 8, 99, 100, 257}) {
      SCOPED_TRACE(fmt::format("window {}, {} tokens", window, tokens));
      const op::Program program = program_of({attention_op(window), attention_op(window)});
      const auto seen = static_cast<double>(positions_seen(window, tokens));
      EXPECT_EQ(prompt_multiply_adds(program, tokens), 2 * seen * 6 * (7 + 5));
      const double numbers = 2 * seen / static_cast<double>(tokens) * 2 * (7 + 5);
      const Traffic half = generation_traffic(program, tokens, "f16");
      EXPECT_EQ(half.weight_bytes, 0);
      EXPECT_NEAR(half.kv_bytes, 2 * numbers, 1e-9 * numbers);
      EXPECT_NEAR(generation_traffic(program, tokens, "f64").kv_bytes, 8 * numbers, 1e-9 * numbers);
      EXPECT_NEAR(generation_traffic(program, tokens, "q8_0").kv_bytes, 34.0 / 32 * numbers,
                  1e-9 * numbers);
    }
  }
}

}  // namespace
}  // namespace lockstep::engine
