#include "doctor/decodings.h"

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/test_effort.h"
#include "doctor/decoding_parts.h"
#include "quant/decode.h"

namespace lockstep::doctor {
namespace {

using quant::Format;

// Random bytes as a weight of [rows, blocks of a row].
struct RandomWeight {
  std::vector<std::byte> bytes;
  op::Weight weight;

  RandomWeight(const quant::FormatInfo& format, int64_t rows, int64_t blocks, uint64_t seed) {
    Random random(seed);
    weight.format = &format;
    weight.rows = rows;
    weight.columns = blocks * format.block_values;
    bytes.resize(static_cast<size_t>(rows * blocks * format.block_bytes));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
    weight.data = bytes;
  }
};

std::vector<const quant::FormatInfo*> quantized_formats() {
  std::vector<const quant::FormatInfo*> out;
  for (const quant::FormatInfo& format : quant::all_formats())
    if (format.decodable && format.block_values > 1) out.push_back(&format);
  return out;
}

uint32_t canonical_bits(float value) {
  return std::isnan(value) ? 0x7fc00000u : bits_from_float(value);
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (canonical_bits(a[i]) != canonical_bits(b[i])) return false;
  return true;
}

std::vector<float> decode_truly(const op::Weight& weight) {
  std::vector<float> out(static_cast<size_t>(weight.rows * weight.columns));
  quant::decode(weight.format->format(), weight.data.data(), weight.rows * weight.columns,
                out.data());
  return out;
}

TEST(Parts, PutTogetherAreTheBlock) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  for (const quant::FormatInfo* format : quantized_formats())
    for (const int64_t blocks : {1, 7, 255}) {
      const RandomWeight random(*format, 3, blocks, seed);
      std::vector<float> got(static_cast<size_t>(random.weight.rows * random.weight.columns));
      quant::visit_format(format->format(), [&]<class Block>(Block) {
        if constexpr (Block::kValues > 1)
          for (int64_t row = 0; row < 3; ++row)
            for (int64_t block = 0; block < blocks; ++block)
              assemble(parts_of(Place{random.weight, row, block}.read<Block>()),
                       got.data() + (row * blocks + block) * Block::kValues);
      });
      EXPECT_TRUE(same_bits(got, decode_truly(random.weight))) << format->name << " seed " << seed;
    }
}

TEST(Decodings, EveryQuantizedFormatHasManyAndNoneIsTheSameAsAnother) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  const std::set<std::string_view> kinds = {"nibble_order", "scale_order", "scale_min_swapped",
                                            "high_bits",    "offset",      "block_scale",
                                            "type"};
  size_t number = 0;
  for (const quant::FormatInfo* format : quantized_formats()) {
    if (!takes(number++)) continue;
    // Rows that are whole blocks of every type; among so many blocks some scales are subnormal.
    const RandomWeight random(*format, 17, 256 / format->block_values * 31, seed);
    std::map<std::string, std::vector<float>> all = {{"the truth", decode_truly(random.weight)}};
    const auto decodings = decodings_of(format->format());
    EXPECT_GE(decodings.size(), 20u) << format->name;
    for (const Decoding& decoding : decodings) {
      EXPECT_EQ(decoding.format, format->format());
      EXPECT_TRUE(kinds.contains(decoding.how)) << decoding.words;
      if (!applies(decoding, random.weight)) continue;
      const std::vector<float> values = decode_all(random.weight, decoding, 2);
      for (const auto& [words, other] : all)
        EXPECT_FALSE(same_bits(values, other))
            << format->name << " seed " << seed << ": " << decoding.words << " / " << words;
      EXPECT_TRUE(all.emplace(decoding.words, values).second) << decoding.words;
    }
  }
  EXPECT_TRUE(decodings_of(Format::kF32).empty());
}

TEST(Decodings, ARowIsTheSameAloneAndAmongAll) {
  for (const quant::FormatInfo* format : quantized_formats()) {
    const RandomWeight random(*format, 7, 256 / format->block_values, 5);
    for (const Decoding& decoding : decodings_of(format->format())) {
      if (!applies(decoding, random.weight)) continue;
      const std::vector<float> all = decode_all(random.weight, decoding, 3);
      std::vector<float> one(static_cast<size_t>(random.weight.columns));
      for (int64_t row = 0; row < 7; ++row) {
        decode_row(random.weight, row, decoding, nullptr, one.data());
        EXPECT_TRUE(same_bits(
            one, std::span(all).subspan(static_cast<size_t>(row) * one.size(), one.size())))
            << format->name << ": " << decoding.words;
      }
    }
  }
}

// A type is another's where its rows are whole blocks and the bytes suffice.
TEST(Decodings, OtherTypesApplyWhereTheBytesDo) {
  const auto type = [](Format format, Format as) -> const Decoding& {
    for (const Decoding& decoding : decodings_of(format))
      if (decoding.how == "type" && decoding.as == as) return decoding;
    throw std::runtime_error("no such row");
  };
  const RandomWeight small(quant::info(Format::kQ4_0), 3, 7, 1);  // 224 columns
  EXPECT_TRUE(applies(type(Format::kQ4_0, Format::kIQ4_NL), small.weight));
  EXPECT_FALSE(applies(type(Format::kQ4_0, Format::kQ4_K), small.weight));
  EXPECT_FALSE(applies(type(Format::kQ4_0, Format::kQ8_0), small.weight));
  const RandomWeight large(quant::info(Format::kQ4_0), 3, 16, 1);
  EXPECT_TRUE(applies(type(Format::kQ4_0, Format::kQ4_K), large.weight));
  const std::vector<float> read = decode_all(large.weight, type(Format::kQ4_0, Format::kQ4_K), 1);
  std::vector<float> expected(read.size());
  quant::decode(Format::kQ4_K, large.bytes.data(), std::ssize(expected), expected.data());
  EXPECT_TRUE(same_bits(read, expected));
}

// What engines do, written out as they do it.
std::vector<float> find(const op::Weight& weight, std::string_view words) {
  for (const Decoding& decoding : decodings_of(weight.format->format()))
    if (decoding.words == words) return decode_all(weight, decoding, 1);
  ADD_FAILURE() << words;
  return {};
}

template <class Block, class Value>
void expect_values(std::string_view words, const Value& value) {
  const RandomWeight random(quant::info(Block::kFormat), 1, 1, 77);
  Block block;
  std::memcpy(&block, random.bytes.data(), sizeof block);
  const std::vector<float> got = find(random.weight, words);
  ASSERT_EQ(std::ssize(got), Block::kValues);
  for (int i = 0; i < Block::kValues; ++i)
    EXPECT_EQ(canonical_bits(got[static_cast<size_t>(i)]), canonical_bits(value(block, i)))
        << words << " value " << i;
}

TEST(Decodings, AreWhatTheirWordsSay) {
  using namespace quant;
  expect_values<BlockQ4_0>(
      "takes the two nibbles of a byte as neighbouring values, the low nibble first",
      [](const BlockQ4_0& b, int i) {
        const int q = i % 2 == 0 ? b.codes[i / 2] & 15 : b.codes[i / 2] >> 4;
        return half_to_float(b.d) * static_cast<float>(q - 8);
      });
  expect_values<BlockQ4_0>("subtracts no offset from the codes", [](const BlockQ4_0& b, int i) {
    const int q = i < 16 ? b.codes[i] & 15 : b.codes[i - 16] >> 4;
    return half_to_float(b.d) * static_cast<float>(q);
  });
  expect_values<BlockQ5_0>("takes the 32 fifth bits in reverse", [](const BlockQ5_0& b, int i) {
    uint32_t bits;
    std::memcpy(&bits, b.high, 4);
    const int q = (i < 16 ? b.codes[i] & 15 : b.codes[i - 16] >> 4) |
                  static_cast<int>((bits >> (31 - i)) & 1) << 4;
    return half_to_float(b.d) * static_cast<float>(q - 16);
  });
  expect_values<BlockQ8_0>("reads the block's scale as f32, its codes in their place (it is f16)",
                           [](const BlockQ8_0& b, int i) {
                             float d;
                             std::memcpy(&d, &b, 4);
                             return d * static_cast<float>(b.codes[i]);
                           });
  expect_values<BlockQ4_0>("reads the block's scale at the end of the block (it lies at its start)",
                           [](const BlockQ4_0& b, int i) {
                             uint8_t bytes[18];
                             std::memcpy(bytes, &b, 18);
                             const auto d =
                                 half_to_float(static_cast<uint16_t>(bytes[16] | bytes[17] << 8));
                             const int q = i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4;
                             return d * static_cast<float>(q - 8);
                           });
  expect_values<BlockQ4_K>(
      "takes the twelve bytes as eight pairs of six-bit scale and min without gaps",
      [](const BlockQ4_K& b, int i) {
        const auto six = [&](int n) {
          unsigned __int128 all = 0;
          std::memcpy(&all, b.scales, 12);
          return static_cast<int>((all >> (6 * n)) & 63);
        };
        const int g = i / 32;
        const int q = (b.codes[g / 2 * 32 + i % 32] >> (g % 2 * 4)) & 15;
        return half_to_float(b.d) * static_cast<float>(six(2 * g)) * static_cast<float>(q) -
               half_to_float(b.d_min) * static_cast<float>(six(2 * g + 1));
      });
  expect_values<BlockQ6_K>(
      "takes the scales of the groups as numbers without a sign", [](const BlockQ6_K& b, int i) {
        const int half = i / 128;
        const int low = (b.low[half * 64 + i % 64] >> (i % 128 / 64 * 4)) & 15;
        const int high = (b.high[half * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
        return half_to_float(b.d) * static_cast<float>(static_cast<uint8_t>(b.scales[i / 16])) *
               static_cast<float>((low | high << 4) - 32);
      });
  expect_values<BlockQ3_K>("reads the high bits of the codes inverted",
                           [](const BlockQ3_K& b, int i) {
                             const int q = two_bits(b.codes, i);
                             const bool high = ((b.high[i % 32] >> (i / 32)) & 1) != 0;
                             return half_to_float(b.d) * static_cast<float>(q3_k_scale(b, i / 16)) *
                                    static_cast<float>(high ? q - 4 : q);
                           });
  expect_values<BlockMXFP4>(
      "takes an exponent that is one too large, or does not halve the doubled table",
      [](const BlockMXFP4& b, int i) {
        const int q = i < 16 ? b.codes[i] & 15 : b.codes[i - 16] >> 4;
        return std::ldexp(mxfp4_level(q), b.exponent - 127);
      });
}

}  // namespace
}  // namespace lockstep::doctor
