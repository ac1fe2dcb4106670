// Numbers of other types read as f32, in rows as long as a trace's and as short as a log's.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "forensics/test_support.h"

namespace lockstep::forensics {
namespace {

struct Stored {
  const char* name;
  Kind kind;
  // Appends a number's bytes; gives it as it is stored.
  std::function<double(Random&, double scale, std::vector<std::byte>&)> put;
  int64_t least = 0;  // numbers that it takes
};

template <class T>
double append(std::vector<std::byte>& bytes, T value, double meaning) {
  const auto* data = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), data, data + sizeof value);
  return meaning;
}

double integer(Random& random, double sigma, double limit) {
  return std::clamp(std::round(sigma * random.gaussian()), -limit, limit) + 0.0;  // no -0
}

std::vector<Stored> types() {
  const auto put_double = [](std::vector<std::byte>& bytes, double value) {
    return append(bytes, value, value);
  };
  return {
      {"fp16", Kind::kHalfPairs,
       [](Random& random, double scale, std::vector<std::byte>& bytes) {
         const uint16_t half = float_to_half(static_cast<float>(scale * random.gaussian()));
         return append(bytes, half, static_cast<double>(half_to_float(half)));
       }},
      {"bf16", Kind::kBfloatPairs,
       [](Random& random, double scale, std::vector<std::byte>& bytes) {
         const uint16_t half = float_to_bfloat(static_cast<float>(scale * random.gaussian()));
         return append(bytes, half, static_cast<double>(bfloat_to_float(half)));
       }},
      {"f64", Kind::kDouble,
       [=](Random& random, double scale, std::vector<std::byte>& bytes) {
         return put_double(bytes, scale * random.gaussian());
       },
       100},
      {"f64 that was f32", Kind::kDouble,
       [=](Random& random, double scale, std::vector<std::byte>& bytes) {
         const auto narrow = static_cast<float>(scale * random.gaussian());
         return put_double(bytes, static_cast<double>(narrow));
       }},
      {"f64 that was bf16", Kind::kDouble,
       [=](Random& random, double scale, std::vector<std::byte>& bytes) {
         const auto narrow = static_cast<float>(scale * random.gaussian());
         return put_double(bytes, static_cast<double>(bfloat_to_float(float_to_bfloat(narrow))));
       },
       250},
      {"int8", Kind::kInt8,
       [](Random& random, double, std::vector<std::byte>& bytes) {
         const double value = integer(random, 32, 127);
         return append(bytes, static_cast<int8_t>(value), value);
       }},
      {"int8 around -50", Kind::kInt8,
       [](Random& random, double, std::vector<std::byte>& bytes) {
         const double value = integer(random, 20, 70) - 50;
         return append(bytes, static_cast<int8_t>(value), value);
       }},
      {"uint8", Kind::kInt8,
       [](Random& random, double, std::vector<std::byte>& bytes) {
         const auto value =
             static_cast<int8_t>(static_cast<uint8_t>(128 + integer(random, 20, 127)));
         return append(bytes, value, static_cast<double>(value));
       }},
      {"int16", Kind::kInt16,
       [](Random& random, double, std::vector<std::byte>& bytes) {
         const double value = integer(random, 7000, 32767);
         return append(bytes, static_cast<int16_t>(value), value);
       }},
      {"int32", Kind::kInt32,
       [](Random& random, double, std::vector<std::byte>& bytes) {
         const double value = integer(random, 30000, 1e6);
         return append(bytes, static_cast<int32_t>(value), value);
       }},
      {"token ids of 64 bits", Kind::kInt32,
       [](Random& random, double, std::vector<std::byte>& bytes) {
         const int64_t value = random.below(150000);
         return append(bytes, value, static_cast<double>(value));
       }},
  };
}

class Formats : public testing::Test {
 protected:
  // The first number as it should be read comes back in `first`.
  Row row_of(const Stored& type, int64_t width, double scale, double* first = nullptr) {
    Row row;
    bool none = true;
    while (static_cast<int64_t>(row.bytes.size()) < 4 * width) {
      const double value = type.put(random_, scale, row.bytes);
      if (none && first != nullptr) *first = value;
      none = false;
    }
    row.bytes.resize(static_cast<size_t>(4 * width));
    return row;
  }

  void expect_kind(const Report& report, Kind kind) {
    const auto clusters = garbage_of(report);
    ASSERT_EQ(clusters.size(), 1u) << describe(report);
    EXPECT_EQ(info(clusters[0].kind).name, info(kind).name) << describe(report);
    EXPECT_TRUE(clusters[0].whole_rows) << describe(report);
  }

  double scale() { return std::pow(10, 3 * random_.uniform() - 1.5); }

  uint64_t seed_ = std::random_device{}();
  Random random_{seed_};
};

TEST_F(Formats, OneLongRow) {
  for (const Stored& type : types())
    for (const int64_t width : {64, 65, 100, 255, 256, 257, 896, 4096})
      for (int round = 0; round < rounds(5) && width >= type.least; ++round) {
        SCOPED_TRACE(fmt::format("{}, width {}, seed {}", type.name, width, seed_));
        MemorySource source;
        double first = 0;
        const int64_t spoiled = random_.below(4);
        for (int64_t position = 0; position < 4; ++position)
          source.add("blk.2.k", position,
                     position == spoiled ? row_of(type, width, scale(), &first)
                                         : gaussian_row(random_, DType::kF32, width));
        const Report report = scan(source);
        expect_kind(report, type.kind);
        const auto clusters = garbage_of(report);
        ASSERT_EQ(clusters.size(), 1u);
        EXPECT_EQ(clusters[0].positions, std::vector<int64_t>{spoiled});
        EXPECT_NE(
            clusters[0].evidence.find(fmt::format(
                "they are {}, ", first == std::round(first) ? fmt::format("{}", std::llround(first))
                                                            : fmt::format("{:.3g}", first))),
            std::string::npos)
            << clusters[0].evidence << " " << first;
      }
}

TEST_F(Formats, ShortRowsTakenTogether) {
  for (const Stored& type : types())
    for (const int64_t width : {6, 7, 8, 10, 16, 31})
      for (int round = 0; round < 5 && 24 * width >= type.least; ++round) {
        SCOPED_TRACE(fmt::format("{}, width {}, seed {}", type.name, width, seed_));
        MemorySource source;
        const double size = scale();
        for (int64_t position = 0; position < 24; ++position)
          source.add("logits", position, row_of(type, width, size));
        const Report report = scan(source);
        expect_kind(report, type.kind);
        if (HasFatalFailure()) return;
        // A row may have drawn numbers that say nothing.
        EXPECT_GE(garbage_of(report)[0].positions.size(), 16u) << describe(report);
      }
}

// From some position on, as when a prompt's rows are right and those of generation are not.
TEST_F(Formats, SomeOfTheShortRows) {
  for (const Stored& type : types())
    for (int round = 0; round < 20; ++round) {
      SCOPED_TRACE(fmt::format("{}, seed {}", type.name, seed_));
      MemorySource source;
      const int64_t from = type.least > 0 ? 0 : random_.below(20);
      for (int64_t position = 0; position < 40; ++position)
        source.add(
            "blk.2.output", position,
            position < from ? gaussian_row(random_, DType::kF32, 10) : row_of(type, 10, 1.0));
      const Report report = scan(source);
      expect_kind(report, type.kind);
      if (HasFatalFailure()) return;
      const std::vector<int64_t> positions = garbage_of(report)[0].positions;
      // A row before may look like it by chance.
      EXPECT_GE(positions.front(), from - 2);
      EXPECT_GE(static_cast<int64_t>(positions.size()) * 10, (40 - from) * 8) << describe(report);
    }
}

// A row of an odd number of f32 starts in the middle of a double every second time.
TEST_F(Formats, DoublesOfOddWidth) {
  const Stored type = types()[2];
  MemorySource source;
  const Row all = row_of(type, 2 * 7 * 20, 1.0);
  for (int64_t position = 0; position < 20; ++position) {
    Row row;
    row.bytes.assign(all.bytes.begin() + position * 28, all.bytes.begin() + position * 28 + 28);
    source.add("logits", position, row);
  }
  const Report report = scan(source);
  expect_kind(report, Kind::kDouble);
  if (HasFatalFailure()) return;
  EXPECT_GE(garbage_of(report)[0].positions.size(), 15u) << describe(report);
}

// A log with six digits keeps what tells halves and doubles.
TEST_F(Formats, RowsOfSixDigits) {
  for (const size_t which : {0u, 1u, 2u, 3u}) {
    const Stored type = types()[which];
    SCOPED_TRACE(fmt::format("{}, seed {}", type.name, seed_));
    MemorySource source;
    for (int64_t position = 0; position < 24; ++position) {
      Row row = row_of(type, 10, 1.0);
      std::vector<double> printed;
      for (int64_t i = 0; i < row.count(); ++i)
        printed.push_back(std::stod(fmt::format("{:.6g}", row.at(i))));
      row = make_row(DType::kF32, printed);
      row.exact = false;
      row.digits = 6;
      source.add("logits", position, row);
    }
    expect_kind(scan(source), type.kind);
  }
}

// What every layer has is said once.
TEST_F(Formats, TheSameInEveryLayerIsOneFinding) {
  MemorySource source;
  for (int layer = 0; layer < 5; ++layer)
    for (int64_t position = 0; position < 3; ++position)
      source.add(fmt::format("blk.{}.k", layer), position,
                 row_of(types()[0], 64 + 10 * layer, 1.0));
  const Report report = scan(source);
  expect_kind(report, Kind::kHalfPairs);
  if (HasFatalFailure()) return;
  const auto clusters = garbage_of(report);
  EXPECT_EQ(clusters[0].checkpoints.size(), 5u);
  EXPECT_EQ(clusters[0].checkpoints.back(), "blk.4.k");
  EXPECT_EQ(clusters[0].numbers, 3 * (64 + 74 + 84 + 94 + 104));
}

}  // namespace
}  // namespace lockstep::forensics
