#include "quant/decode.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/float16.h"
#include "base/random.h"
#include "quant/blocks.h"
#include "quant/decode_wide.h"

namespace lockstep::quant {
namespace {

TEST(Blocks, SizesAreThoseOfTheTable) {
  int decodable = 0;
  for (const FormatInfo& format : all_formats()) {
    if (!format.decodable) continue;
    ++decodable;
    visit_format(format.format(), [&]<class Block>(Block) {
      EXPECT_EQ(Block::kFormat, format.format()) << format.name;
      EXPECT_EQ(Block::kValues, format.block_values) << format.name;
      EXPECT_EQ(static_cast<int64_t>(sizeof(Block)), format.block_bytes) << format.name;
    });
  }
  EXPECT_EQ(decodable, 16);
}

uint32_t canonical(float value) {
  return std::isnan(value) ? 0x7fc00000u : bits_from_float(value);
}

// Any bytes are blocks. One byte off, so that an aligned read would show under UBSan.
TEST(WideDecode, HasTheBitsOfThePlainOne) {
  Random random(std::random_device{}());
  for (const FormatInfo& format : all_formats()) {
    const DecodeBlocks wide = wide_decode(format.format());
    if (wide == nullptr) continue;
    SCOPED_TRACE(format.name);
    for (const int64_t blocks : {1, 2, 7, 33}) {
      std::vector<std::byte> bytes(static_cast<size_t>(blocks * format.block_bytes) + 1);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
      const auto values = static_cast<size_t>(blocks * format.block_values);
      std::vector<float> found(values + 1, 7.0F), expected(values);
      wide(bytes.data() + 1, blocks, found.data());
      visit_format(format.format(), [&]<class Block>(Block block) {
        for (int64_t i = 0; i < blocks; ++i) {
          std::memcpy(&block, bytes.data() + 1 + i * format.block_bytes, sizeof block);
          decode(block, expected.data() + i * format.block_values);
        }
      });
      for (size_t i = 0; i < values; ++i)
        ASSERT_EQ(canonical(found[i]), canonical(expected[i])) << i << " of " << values;
      EXPECT_EQ(found[values], 7.0F);
    }
  }
}

// tests/fixtures/make_quant_decode.py wrote the file from the gguf package.
TEST(Decode, IsWhatTheGgufPackageGives) {
  const std::string path = LOCKSTEP_FIXTURES "/quant_decode.bin";
  std::ifstream stream(path, std::ios::binary);
  ASSERT_TRUE(stream) << path;
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  size_t at = 0;
  const auto take = [&](void* to, size_t size) {
    LS_CHECK(at + size <= bytes.size(), "fixture ends at {}", at);
    std::memcpy(to, bytes.data() + at, size);
    at += size;
  };
  int formats = 0;
  while (at < bytes.size()) {
    uint32_t header[2];  // format, blocks
    take(header, sizeof header);
    const FormatInfo* format = find_format(header[0]);
    ASSERT_NE(format, nullptr) << header[0];
    SCOPED_TRACE(format->name);
    ++formats;
    const int64_t values = header[1] * format->block_values;
    // One byte off, so that an aligned read of the source would show under UBSan.
    std::vector<std::byte> blocks(static_cast<size_t>(size_bytes(*format, values)) + 1);
    take(blocks.data() + 1, blocks.size() - 1);
    std::vector<float> expected(static_cast<size_t>(values));
    take(expected.data(), expected.size() * sizeof(float));
    std::vector<float> got(expected.size());
    decode(format->format(), blocks.data() + 1, values, got.data());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(canonical(got[i]), bits_from_float(expected[i]))
          << "value " << i << ": " << got[i] << ", expected " << expected[i];
    }
  }
  EXPECT_EQ(formats, 16);
}

TEST(Decode, OneCallOrManyGiveTheSame) {
  Random random(11);
  for (const FormatInfo& format : all_formats()) {
    if (!format.decodable) continue;
    SCOPED_TRACE(format.name);
    for (const int64_t n_blocks : {1, 7, 255, 257}) {
      const int64_t values = n_blocks * format.block_values;
      std::vector<std::byte> blocks(static_cast<size_t>(size_bytes(format, values)));
      for (std::byte& byte : blocks) byte = static_cast<std::byte>(random.next());
      std::vector<float> together(static_cast<size_t>(values));
      decode(format.format(), blocks.data(), values, together.data());
      std::vector<float> one(static_cast<size_t>(format.block_values));
      for (int64_t b = 0; b < n_blocks; ++b) {
        decode(format.format(), blocks.data() + b * format.block_bytes, format.block_values,
               one.data());
        for (int64_t i = 0; i < format.block_values; ++i) {
          ASSERT_EQ(canonical(one[static_cast<size_t>(i)]),
                    canonical(together[static_cast<size_t>(b * format.block_values + i)]))
              << "block " << b << " value " << i;
        }
      }
    }
  }
}

TEST(Decode, NothingIsFine) {
  decode(Format::kQ4_K, nullptr, 0, nullptr);
}

TEST(DecodeDeathTest, ChecksTheCaller) {
  float out[64];
  const std::byte source[64] = {};
  EXPECT_DEATH(decode(Format::kQ4_0, source, 31, out), "31 values in blocks of 32");
  EXPECT_DEATH(decode(static_cast<Format>(9), source, 32, out), "Q8_1");
}

}  // namespace
}  // namespace lockstep::quant
