#include "trace/jsonl.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "base/random.h"

namespace lockstep::trace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct All {
  std::vector<JsonlRecord> records;
  std::vector<JsonlProblem> problems;
};

All read_all(std::string_view text) {
  JsonlReader reader(text, "log");
  All all;
  while (auto record = reader.next()) all.records.push_back(std::move(*record));
  all.problems = reader.problems();
  return all;
}

std::string line_with(const std::string& fields) {
  return R"({"checkpoint":"logits","team":"x","token_idx":0,)" + fields + "}\n";
}

TEST(Jsonl, ReadsEveryField) {
  const All all = read_all(
      R"({"ts":"2026-01-01T00:00:00Z","checkpoint":"layer_12_output","team":"cuda \u00e9\ud83d\ude00","token_idx":7,)"
      R"("dtype":"f16","shape":"[1, 896]","values":[1.5, -2, 3e-3],"source":"a.cpp:12","more":{"a":[1,{}],"b":null}})"
      "\r\n\n");
  ASSERT_TRUE(all.problems.empty()) << to_text(all.problems[0], "log");
  ASSERT_EQ(all.records.size(), 1u);
  const JsonlRecord& record = all.records[0];
  EXPECT_EQ(record.line, 1);
  EXPECT_EQ(record.checkpoint, "blk.12.output");
  EXPECT_EQ(record.team, "cuda \u00e9\U0001f600");
  EXPECT_EQ(record.position, 7);
  EXPECT_EQ(record.dtype, DType::kF16);
  EXPECT_EQ(record.shape, (std::vector<int64_t>{1, 896}));
  EXPECT_EQ(record.values, (std::vector<double>{1.5, -2, 3e-3}));
  EXPECT_EQ(record.ts, "2026-01-01T00:00:00Z");
  EXPECT_EQ(record.source, "a.cpp:12");
}

TEST(Jsonl, TakesWhatLoggersWriteForInfinityAndNan) {
  const All all = read_all(line_with(
      R"("values":[1e308, -1e+308, "inf", "-Infinity", Infinity, -Infinity, -inf, NaN, nan, "NaN", -nan, null, 1e999, -0.0, "2.5"])"));
  ASSERT_TRUE(all.problems.empty()) << to_text(all.problems[0], "log");
  const std::vector<double>& values = all.records.at(0).values;
  ASSERT_EQ(values.size(), 15u);
  const double expected[] = {kInfinity, -kInfinity, kInfinity, -kInfinity,
                             kInfinity, -kInfinity, -kInfinity};
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(values[i], expected[i]) << i;
  for (size_t i = 7; i < 12; ++i) EXPECT_TRUE(std::isnan(values[i])) << i;
  EXPECT_EQ(values[12], kInfinity);
  EXPECT_TRUE(values[13] == 0 && std::signbit(values[13]));
  EXPECT_EQ(values[14], 2.5);
  EXPECT_EQ(all.records[0].stand_ins, 3);
}

TEST(Jsonl, ReadsShapesOfAllKinds) {
  for (const char* shape :
       {"\"[1,151936]\"", "[1,151936]", "\"(1, 151936)\"", "\"[ 1 , 151936 ]\""}) {
    const All all = read_all(line_with(fmt::format("\"shape\":{},\"values\":[[1,2]]", shape)));
    ASSERT_TRUE(all.problems.empty()) << shape << to_text(all.problems[0], "log");
    EXPECT_EQ(all.records.at(0).shape, (std::vector<int64_t>{1, 151936})) << shape;
    EXPECT_EQ(all.records[0].values, (std::vector<double>{1, 2}));
  }
}

TEST(Jsonl, KnowsOtherNamesOfTypes) {
  const std::pair<const char*, DType> names[] = {
      {"float32", DType::kF32}, {"torch.float16", DType::kF16}, {"BF16", DType::kBF16},
      {"double", DType::kF64},  {"half", DType::kF16},          {"torch.bfloat16", DType::kBF16}};
  for (const auto& [name, dtype] : names) {
    const All all = read_all(line_with(fmt::format(R"("dtype":"{}","values":[1])", name)));
    EXPECT_EQ(all.records.at(0).dtype, dtype) << name;
    EXPECT_TRUE(all.problems.empty());
  }
  const All unknown = read_all(line_with(R"("dtype":"q8_0","values":[1])"));
  ASSERT_EQ(unknown.records.size(), 1u);
  EXPECT_EQ(unknown.records[0].dtype, std::nullopt);
  ASSERT_EQ(unknown.problems.size(), 1u);
  EXPECT_TRUE(unknown.problems[0].kept);
  EXPECT_EQ(to_text(unknown.problems[0], "log"),
            "log:1:57: dtype 'q8_0' is not known; taken as f32");
}

TEST(Jsonl, LinesThatAreWrongInTheSameWayAreOneProblem) {
  std::string text;
  for (int i = 0; i < 5; ++i)
    text += fmt::format("word {}\n", i) + line_with(R"("dtype":"q1","dtype":"q2","values":[1])");
  const All all = read_all(text);
  EXPECT_EQ(all.records.size(), 5u);
  ASSERT_EQ(all.problems.size(), 2u);
  EXPECT_EQ(to_text(all.problems[0], "log"),
            "log:1:1: found 'word 0', expected '{' (and 4 more lines like it, the last is line 9)");
  EXPECT_EQ(all.problems[1].lines, 5);
  EXPECT_EQ(all.problems[1].line, 2);
  EXPECT_EQ(all.problems[1].last_line, 10);
  EXPECT_TRUE(all.problems[1].kept);
}

// Whatever is wrong is told with its line and column, and the lines around it are read.
TEST(Jsonl, TellsWhatItCannotRead) {
  struct Bad {
    const char* line;
    int64_t column;
    const char* message;
  };
  const Bad bad[] = {
      {"[1,2]", 1, "found '[1,2]', expected '{'"},
      {"hello", 1, "found 'hello', expected '{'"},
      {R"({"checkpoint":"a","token_idx":0})", 1, "no field 'values'"},
      {R"({"checkpoint":"a","values":[1]})", 1, "no field 'token_idx'"},
      {R"({"token_idx":0,"values":[1]})", 1, "no field 'checkpoint'"},
      {R"({"checkpoint":"a","token_idx":0,"values":[]})", 1, "'values' is empty"},
      {R"({"checkpoint":"a","token_idx":-1,"values":[1]})", 31,
       "found -1, expected a position: a whole number from 0 to 16777215"},
      {R"({"checkpoint":"a","token_idx":1.5,"values":[1]})", 31,
       "found 1.5, expected a position: a whole number from 0 to 16777215"},
      {R"({"checkpoint":"a","token_idx":0,"values":[1,two]})", 45,
       "found 'two]}', expected a number"},
      {R"({"checkpoint":"a","token_idx":0,"values":[1,"two"]})", 45,
       "found 'two', expected a number"},
      {R"({"checkpoint":"a","token_idx":0,"values":[1 2]})", 45,
       "found '2]}', expected ',' or ']'"},
      {R"({"checkpoint":"a","token_idx":0,"values":[1]} x)", 47,
       "found 'x', expected the end of the line"},
      {R"({"checkpoint":7,"token_idx":0,"values":[1]})", 15,
       "found '7,\"token_idx\":0…', expected a string"},
      {R"({"checkpoint":"a","token_idx":0,"shape":"big","values":[1]})", 41,
       "found 'big', expected a shape such as \"[1,151936]\""},
      {R"({"checkpoint":"a","token_idx":0,"shape":"[-3]","values":[1]})", 41,
       "found '[-3]', expected a shape such as \"[1,151936]\""},
      {R"({"checkpoint":"a","token_idx":0,"shape":[2],"values":[1,2,3]})", 1,
       "3 values for a shape of 2"},
      {R"({"checkpoint":"a","token_idx":0,"shape":[1099511627776,1099511627776],"values":[1]})", 1,
       "'shape' is too large"},
      {R"({"checkpoint":"a\q","token_idx":0,"values":[1]})", 17,
       "found '\\q\",\"token_idx\"…', expected a JSON escape"},
  };
  const std::string good = line_with("\"values\":[1]");
  for (const Bad& item : bad) {
    SCOPED_TRACE(item.line);
    const All all = read_all(good + item.line + "\n" + good);
    EXPECT_EQ(all.records.size(), 2u);
    ASSERT_EQ(all.problems.size(), 1u);
    EXPECT_EQ(all.problems[0].line, 2);
    EXPECT_EQ(all.problems[0].column, item.column);
    EXPECT_EQ(all.problems[0].message, item.message);
    EXPECT_FALSE(all.problems[0].truncated);
    EXPECT_FALSE(all.problems[0].kept);
  }
}

// A log cut off anywhere: everything before the cut, and the cut itself is told.
TEST(Jsonl, ACutOffLastLineIsToldAsSuch) {
  const std::string good = line_with("\"values\":[1.25, 3]");
  const std::string last =
      line_with(R"("dtype":"f32","shape":"[1,9]","values":[10.5, -1e-7, "inf"],"ts":"\u00e9")");
  for (size_t length = 1; length < last.size() - 1; ++length) {
    SCOPED_TRACE(last.substr(0, length));
    const std::string text = good + last.substr(0, length);
    const All all = read_all(text);
    ASSERT_EQ(all.records.size(), 1u);
    ASSERT_EQ(all.problems.size(), 1u);
    EXPECT_EQ(all.problems[0].line, 2);
    EXPECT_TRUE(all.problems[0].truncated);
    EXPECT_TRUE(all.problems[0].message.starts_with("the last line is cut off: "));
  }
  // Whole, but without its newline.
  EXPECT_EQ(read_all(good + last.substr(0, last.size() - 1)).records.size(), 2u);
}

TEST(Jsonl, NestingIsBounded) {
  const std::string deep(100000, '[');
  for (const char* field : {"values", "unknown"}) {
    const All all = read_all(line_with(fmt::format("\"{}\":{}", field, deep)));
    EXPECT_TRUE(all.records.empty());
    ASSERT_EQ(all.problems.size(), 1u);
    EXPECT_EQ(all.problems[0].message, "nested more than 64 deep");
  }
}

TEST(Jsonl, NamesOfLayers) {
  EXPECT_EQ(jsonl_name("blk.0.output"), "layer_0_output");
  EXPECT_EQ(jsonl_name("blk.31.output"), "layer_31_output");
  EXPECT_EQ(checkpoint_name("layer_31_output"), "blk.31.output");
  for (const char* name : {"logits", "embedding", "blk.0.ffn_out", "blk.x.output", "blk..output"})
    EXPECT_EQ(jsonl_name(name), name);
  for (const char* name : {"logits", "layer__output", "layer_1_out", "layer_a_output"})
    EXPECT_EQ(checkpoint_name(name), name);
}

TEST(Jsonl, RoundTripKeepsEveryBit) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Random random(seed);
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    JsonlRecord record;
    record.checkpoint = "blk.3.output";
    record.team = "a \"b\"\n\xff";
    record.position = 41;
    record.dtype = dtype;
    record.shape = {1, 4000};
    record.source = "x";
    for (int i = 0; i < 3000; ++i) {
      const uint64_t bits = random.next();
      record.values.push_back(load_number(dtype, &bits));
    }
    for (const double value : {0.0, -0.0, 1e308, -1e308, kInfinity, -kInfinity})
      if (dtype == DType::kF64 || std::abs(value) < 1 || std::isinf(value))
        record.values.push_back(value);
    const std::string text = jsonl_line(record);
    const All all = read_all(text);
    ASSERT_TRUE(all.problems.empty()) << to_text(all.problems[0], "log");
    const JsonlRecord& back = all.records.at(0);
    EXPECT_EQ(back.checkpoint, record.checkpoint);
    EXPECT_EQ(back.team, "a \"b\"\n\ufffd");
    EXPECT_EQ(back.position, 41);
    EXPECT_EQ(back.dtype, dtype);
    EXPECT_EQ(back.shape, record.shape);
    EXPECT_EQ(back.source, record.source);
    ASSERT_EQ(back.values.size(), record.values.size());
    for (size_t i = 0; i < record.values.size(); ++i) {
      // Through the type that they are of.
      const double wanted = record.values[i];
      const double got = dtype == DType::kF64
                             ? back.values[i]
                             : static_cast<double>(static_cast<float>(back.values[i]));
      EXPECT_TRUE(std::isnan(wanted) ? std::isnan(got)
                                     : got == wanted && std::signbit(got) == std::signbit(wanted))
          << name(dtype) << " " << wanted << " " << got;
    }
  }
}

}  // namespace
}  // namespace lockstep::trace
