// Every class of garbage from fresh random cases: the right name, the right place, the evidence.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "forensics/bits.h"
#include "forensics/test_support.h"

namespace lockstep::forensics {
namespace {

constexpr int kRounds = 20;
constexpr int64_t kWidths[] = {64, 255, 257, 1000};

// A class of garbage and how to make a case of it.
struct Case {
  const char* name;
  Kind kind;
  DType dtype;
  // Spoils a row of Gaussian numbers; returns the numbers that are garbage now.
  std::function<Range(Row&, Random&)> spoil;
  const char* evidence;  // part of it
};

Range whole(const Row& row) {
  return {0, row.count()};
}

uint64_t heap_address(Random& random) {
  return 0x555500000000u + (random.next() & 0xfffffffff0u) % 0x10000000000u;
}
uint64_t mapped_address(Random& random) {
  return 0x7f0000000000u + ((random.next() % 0x10000000000u) & ~uint64_t{15});
}
// A mapped address that is none of a device.
uint64_t odd_mapped_address(Random& random) {
  return mapped_address(random) | 0x10;
}

Range fill(Row& row, Random& random, uint32_t pattern) {
  const int64_t begin = random.below(row.count() / 2);
  const int64_t end = begin + 8 + random.below(row.count() / 2 - 8);
  for (int64_t i = begin; i < end; ++i)
    poke(row, static_cast<size_t>(i) * 4, &pattern, sizeof pattern);
  return {begin, end};
}

Range fill_bytes(Row& row, const std::function<uint8_t()>& next) {
  for (std::byte& byte : row.bytes) byte = static_cast<std::byte>(next());
  return whole(row);
}

std::vector<Case> cases() {
  std::vector<Case> all = {
      {"unsorted bin", Kind::kFreeList, DType::kF32,
       [](Row& row, Random& random) {
         const uint64_t head = odd_mapped_address(random);
         poke_word(row, 0, head);
         poke_word(row, 1, head);
         return Range{0, 4};
       },
       "unsorted bin"},
      {"unsorted bin, f64", Kind::kFreeList, DType::kF64,
       [](Row& row, Random& random) {
         const uint64_t head = odd_mapped_address(random);
         poke_word(row, 0, head);
         poke_word(row, 1, head);
         return Range{0, 2};
       },
       "unsorted bin"},
      {"forward and backward links", Kind::kFreeList, DType::kF32,
       [](Row& row, Random& random) {
         poke_word(row, 0, heap_address(random));
         poke_word(row, 1, odd_mapped_address(random));
         return Range{0, 4};
       },
       "forward and backward"},
      {"tcache before safe-linking", Kind::kFreeList, DType::kF32,
       [](Row& row, Random& random) {
         poke_word(row, 0, heap_address(random));
         return Range{0, 2};
       },
       "16-byte aligned heap address"},
      {"tcache with safe-linking", Kind::kFreeList, DType::kF32,
       [](Row& row, Random& random) {
         // Link and place in one page; a masked link that looks aligned is told as a plain one.
         uint64_t place, link, stored;
         do {
           place = heap_address(random);
           link = (place & ~uint64_t{0xfff}) | (random.next() & 0xff0);
           stored = place >> 12 ^ link;
         } while (stored % 16 == 0);
         poke_word(row, 0, stored);
         return Range{0, 2};
       },
       "safe-linked pointer"},
      {"end of a safe-linked list", Kind::kFreeList, DType::kF32,
       [](Row& row, Random& random) {
         poke_word(row, 0, heap_address(random) >> 12);
         return Range{0, 2};
       },
       "safe-linked null"},
      {"addresses", Kind::kAddress, DType::kF32,
       [](Row& row, Random& random) {
         const int64_t begin = 4 + random.below(10);
         for (int64_t i = begin; i < begin + 5; ++i)
           poke_word(row, static_cast<size_t>(i),
                     i % 2 == 0 ? heap_address(random) | 8 : odd_mapped_address(random));
         return Range{2 * begin, 2 * begin + 10};
       },
       "heap, mappings and stacks"},
      {"device pointers", Kind::kDevicePointer, DType::kF32,
       [](Row& row, Random& random) {
         for (size_t i = 6; i < 10; ++i)
           poke_word(row, i, mapped_address(random) & ~uint64_t{0x1ff});
         return Range{12, 20};
       },
       "device memory"},
      {"fp16 pairs", Kind::kHalfPairs, DType::kF32,
       [](Row& row, Random& random) {
         for (size_t i = 0; i < row.bytes.size(); i += 2) {
           const uint16_t half = float_to_half(static_cast<float>(3 * random.gaussian()));
           poke(row, i, &half, sizeof half);
         }
         return whole(row);
       },
       "fp16"},
      {"bf16 pairs", Kind::kBfloatPairs, DType::kF32,
       [](Row& row, Random& random) {
         for (size_t i = 0; i < row.bytes.size(); i += 2) {
           const uint16_t bfloat = float_to_bfloat(static_cast<float>(3 * random.gaussian()));
           poke(row, i, &bfloat, sizeof bfloat);
         }
         return whole(row);
       },
       "bf16"},
      {"int8", Kind::kInt8, DType::kF32,
       [](Row& row, Random& random) {
         return fill_bytes(row, [&] {
           return static_cast<uint8_t>(
               static_cast<int8_t>(std::clamp(std::round(30 * random.gaussian()), -127.0, 127.0)));
         });
       },
       "read as int8"},
      {"text", Kind::kText, DType::kF32,
       [](Row& row, Random& random) {
         return fill_bytes(row, [&] {
           return static_cast<uint8_t>(random.below(6) == 0 ? ' ' : 'a' + random.below(26));
         });
       },
       "bytes in a row are printable: '"},
      {"byte-swapped f32", Kind::kByteSwapped, DType::kF32,
       [](Row& row, Random&) {
         for (size_t i = 0; i < row.bytes.size(); i += 4)
           std::reverse(row.bytes.begin() + static_cast<long>(i),
                        row.bytes.begin() + static_cast<long>(i) + 4);
         return whole(row);
       },
       "reversed"},
      {"byte-swapped f64", Kind::kByteSwapped, DType::kF64,
       [](Row& row, Random&) {
         for (size_t i = 0; i < row.bytes.size(); i += 8)
           std::reverse(row.bytes.begin() + static_cast<long>(i),
                        row.bytes.begin() + static_cast<long>(i) + 8);
         return whole(row);
       },
       "reversed"},
      {"noise", Kind::kNoise, DType::kF32,
       [](Row& row, Random& random) {
         return fill_bytes(row, [&] { return static_cast<uint8_t>(random.next()); });
       },
       "binades"},
      {"fp16 limit in f32", Kind::kSaturated, DType::kF32,
       [](Row& row, Random& random) {
         const int64_t at = random.below(row.count());
         const float limit = random.below(2) == 0 ? 65504.0f : -65504.0f;
         poke(row, static_cast<size_t>(at) * 4, &limit, sizeof limit);
         return Range{at, at + 1};
       },
       "65504"},
      {"fp16 limit in f16", Kind::kSaturated, DType::kF16,
       [](Row& row, Random& random) {
         const int64_t at = random.below(row.count() - 1);
         const uint16_t values[] = {0x7bff, 0x7c00};
         poke(row, static_cast<size_t>(at) * 2, values, sizeof values);
         return Range{at, at + 2};
       },
       "1 are infinite"},
      {"NaN", Kind::kNonFinite, DType::kF32,
       [](Row& row, Random& random) {
         const int64_t at = random.below(row.count());
         const float nan = std::numeric_limits<float>::quiet_NaN();
         poke(row, static_cast<size_t>(at) * 4, &nan, sizeof nan);
         return Range{at, at + 1};
       },
       "nan"},
      {"one huge number", Kind::kUnknown, DType::kF32,
       [](Row& row, Random& random) {
         const int64_t at = 5 + random.below(row.count() - 5);
         const float huge = -3e20f;
         poke(row, static_cast<size_t>(at) * 4, &huge, sizeof huge);
         return Range{at, at + 1};
       },
       "-3e+20"},
      {"overflow", Kind::kOverflow, DType::kF32,
       [](Row& row, Random& random) {
         std::vector<double> values = gaussian(random, row.count(), 1e38);
         values[7] = std::numeric_limits<double>::infinity();
         row = make_row(DType::kF32, values);
         for (int64_t i = 0; i < row.count(); ++i)
           if (std::isinf(row.at(i)) && i != 7) {
             const float limit = 3e38f;
             poke(row, static_cast<size_t>(i) * 4, &limit, sizeof limit);
           }
         return Range{-1, -1};  // the finite ones are large too
       },
       "near the limit of f32"},
  };
  for (const uint32_t pattern : {0xcdcdcdcdu, 0xdeadbeefu, 0xaaaaaaaau, 0xfefefefeu, 0x7fbadbadu,
                                 0xbebebebeu, 0xa5a5a5a5u, 0xffffffffu})
    all.push_back({"poison", Kind::kPoison, DType::kF32,
                   [pattern](Row& row, Random& random) { return fill(row, random, pattern); },
                   "numbers in a row are the bytes of"});
  return all;
}

class Garbage : public testing::Test {
 protected:
  uint64_t seed_ = std::random_device{}();
  Random random_{seed_};
};

TEST_F(Garbage, IsNamedAndLocated) {
  for (const Case& item : cases())
    for (int round = 0; round < rounds(kRounds); ++round) {
      const int64_t width = kWidths[random_.below(4)];
      SCOPED_TRACE(fmt::format("{}, width {}, seed {}, round {}", item.name, width, seed_, round));
      MemorySource source;
      const int64_t spoiled = random_.below(5);
      Range range;
      for (int64_t position = 0; position < 5; ++position) {
        Row row = gaussian_row(random_, item.dtype, width);
        if (position == spoiled) range = item.spoil(row, random_);
        source.add("blk.3.ffn_out", position, std::move(row));
      }
      const Report report = scan(source);
      const auto clusters = garbage_of(report);
      ASSERT_FALSE(clusters.empty()) << describe(report);
      EXPECT_EQ(info(clusters[0].kind).name, info(item.kind).name) << describe(report);
      EXPECT_EQ(clusters.size(), 1u) << describe(report);
      EXPECT_EQ(clusters[0].checkpoints[0], "blk.3.ffn_out");
      EXPECT_EQ(clusters[0].positions, std::vector<int64_t>{spoiled});
      EXPECT_NE(clusters[0].evidence.find(item.evidence), std::string::npos)
          << clusters[0].evidence;
      EXPECT_FALSE(report.clean());
      if (range.begin < 0) continue;
      if (item.kind == Kind::kNoise || item.kind == Kind::kText) {
        // From the first number that shows it to the last.
        ASSERT_EQ(clusters[0].values.size(), 1u);
        EXPECT_GE(clusters[0].values[0].begin, range.begin);
        EXPECT_LE(clusters[0].values[0].end, range.end);
        EXPECT_GE(clusters[0].numbers * 10, (range.end - range.begin) * 6) << describe(report);
        continue;
      }
      ASSERT_EQ(clusters[0].values.size(), 1u) << describe(report);
      EXPECT_EQ(clusters[0].values[0].begin, range.begin) << describe(report);
      EXPECT_EQ(clusters[0].values[0].end, range.end) << describe(report);
      EXPECT_EQ(report.garbage_numbers, range.end - range.begin);
      EXPECT_EQ(report.garbage[static_cast<size_t>(spoiled)], range.end - range.begin);
    }
}

// All rows spoiled: nothing in the checkpoint tells what its numbers should be like.
TEST_F(Garbage, IsNamedWhereEveryRowIsSpoiled) {
  for (const Case& item : cases()) {
    SCOPED_TRACE(fmt::format("{}, seed {}", item.name, seed_));
    MemorySource source;
    for (int64_t position = 0; position < 6; ++position) {
      Row row = gaussian_row(random_, item.dtype, 256);
      item.spoil(row, random_);
      source.add("logits", position, std::move(row));
    }
    const Report report = scan(source);
    const auto clusters = garbage_of(report);
    ASSERT_FALSE(clusters.empty());
    EXPECT_EQ(info(clusters[0].kind).name, info(item.kind).name) << describe(report);
    EXPECT_EQ(clusters[0].positions.size(), 6u) << describe(report);
  }
}

TEST_F(Garbage, StaleAndRepeatedRows) {
  SCOPED_TRACE(fmt::format("seed {}", seed_));
  MemorySource source;
  for (int64_t position = 0; position < 8; ++position)
    source.tokens.push_back(static_cast<int32_t>(position));
  const Row stale = gaussian_row(random_, DType::kF32, 96);
  for (int64_t position = 0; position < 8; ++position)
    source.add("blk.1.k", position,
               position == 3 || position == 4 ? stale : gaussian_row(random_, DType::kF32, 96));
  const Row repeated = gaussian_row(random_, DType::kF16, 96);
  for (int64_t position = 0; position < 8; ++position)
    source.add("logits", position,
               position >= 2 ? repeated : gaussian_row(random_, DType::kF16, 96));
  const Report report = scan(source);
  const auto clusters = garbage_of(report);
  ASSERT_EQ(clusters.size(), 2u) << describe(report);
  EXPECT_EQ(clusters[0].kind, Kind::kStaleRow);
  EXPECT_EQ(clusters[0].positions, std::vector<int64_t>{4});
  EXPECT_EQ(
      clusters[0].evidence,
      "all 96 numbers of position 4 are those of position 3, though the tokens differ (3 and 4)");
  EXPECT_EQ(clusters[1].kind, Kind::kRepeatedRows);
  EXPECT_EQ(clusters[1].positions, (std::vector<int64_t>{3, 4, 5, 6, 7}));
}

TEST_F(Garbage, OverflowGrowsThroughTheLayers) {
  SCOPED_TRACE(fmt::format("seed {}", seed_));
  MemorySource source;
  const double scales[] = {1, 1e10, 1e20, 1e30};
  for (int layer = 0; layer < 4; ++layer)
    source.add(fmt::format("blk.{}.output", layer), 5,
               gaussian_row(random_, DType::kF32, 100, scales[layer]));
  std::vector<double> last(100, std::numeric_limits<double>::quiet_NaN());
  source.add("final_norm", 5, make_row(DType::kF32, last));
  const Report report = scan(source);
  const auto clusters = garbage_of(report);
  ASSERT_EQ(clusters.size(), 1u) << describe(report);
  EXPECT_EQ(clusters[0].kind, Kind::kOverflow);
  EXPECT_EQ(clusters[0].checkpoints[0], "final_norm");
  EXPECT_NE(clusters[0].evidence.find("'blk.3.output' before it reached"), std::string::npos);
}

TEST_F(Garbage, InheritedNanNamesItsOrigin) {
  SCOPED_TRACE(fmt::format("seed {}", seed_));
  MemorySource source;
  for (int layer = 0; layer < 4; ++layer) {
    std::vector<double> row = gaussian(random_, 64);
    if (layer >= 2) row[9] = std::numeric_limits<double>::quiet_NaN();
    source.add(fmt::format("blk.{}.output", layer), 0, make_row(DType::kF64, row));
  }
  const auto clusters = garbage_of(scan(source));
  ASSERT_EQ(clusters.size(), 2u);
  EXPECT_EQ(clusters[0].checkpoints[0], "blk.2.output");
  EXPECT_EQ(clusters[0].evidence.find("already"), std::string::npos);
  EXPECT_NE(clusters[1].evidence.find("'blk.2.output' has such at the same position already"),
            std::string::npos);
}

// Logs of few values with few digits: the upper half of an address has become 0.0.
TEST_F(Garbage, FreeListInPrintedLogs) {
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(fmt::format("seed {}, round {}", seed_, round));
    MemorySource source;
    for (int64_t position = 0; position < 6; ++position) {
      std::vector<double> values = gaussian(random_, 10, 3);
      // None so small that it would be odd itself.
      for (double& value : values)
        value = std::round(value * 1e4) / 1e4 + std::copysign(0.05, value);
      const double low =
          std::ldexp(1 + random_.uniform(), 50 + static_cast<int>(random_.below(70)));
      values[0] = low;
      values[1] = 0;
      if (round % 3 > 0) {
        values[2] = round % 3 == 1 ? low : low * 1.001;
        values[3] = 0;
      }
      Row row = make_row(DType::kF32, values);
      row.exact = false;
      source.add("logits", position, std::move(row));
    }
    const Report report = scan(source);
    const auto clusters = garbage_of(report);
    ASSERT_EQ(clusters.size(), 1u) << describe(report);
    EXPECT_EQ(clusters[0].kind, Kind::kFreeList);
    EXPECT_EQ(clusters[0].positions.size(), 6u);
    EXPECT_EQ(clusters[0].values[0].end, round % 3 > 0 ? 4 : 2);
    EXPECT_EQ(clusters[0].evidence.find("unsorted bin") != std::string::npos, round % 3 == 1);
  }
}

TEST(Bits, LinksAreUnmasked) {
  Random random(std::random_device{}());
  for (int i = 0; i < 1000; ++i) {
    const uint64_t place = heap_address(random);
    const uint64_t link = (place & ~uint64_t{0xfff}) | (random.next() & 0xff0);
    EXPECT_EQ(unmask_link(place >> 12 ^ link), link);
    EXPECT_TRUE(is_masked_null(place >> 12));
    EXPECT_FALSE(is_masked_null(place));
    EXPECT_EQ(region_of(place), Region::kHeap);
    EXPECT_EQ(region_of(mapped_address(random)), Region::kMapped);
    EXPECT_EQ(region_of(random.next() | uint64_t{1} << 48), Region::kNone);
  }
}

}  // namespace
}  // namespace lockstep::forensics
