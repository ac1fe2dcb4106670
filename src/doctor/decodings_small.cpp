// The formats of 32 values.
#include <cmath>

#include "doctor/decoding_rows.h"

namespace lockstep::doctor {
namespace {

using quant::BlockIQ4_NL;
using quant::BlockMXFP4;
using quant::BlockQ4_0;
using quant::BlockQ4_1;
using quant::BlockQ5_0;
using quant::BlockQ5_1;
using quant::BlockQ8_0;

// The low nibble with the high one still above it, or the high one where it stands.
template <class Block>
void add_unmasked(Rows& rows) {
  add<Block>(rows, "nibble_order", "does not cut the high nibble off the low one",
             [](const Place&, Parts& parts) {
               for (int i = 0; i < 16; ++i) parts.codes[i] |= (parts.codes[i + 16] & 15) << 4;
             });
  add<Block>(rows, "nibble_order", "does not shift the high nibble down",
             [](const Place&, Parts& parts) {
               for (int i = 16; i < 32; ++i)
                 parts.codes[i] = (parts.codes[i] & 15) << 4 | (parts.codes[i] & 16);
             });
}

// Bit i of 32 belongs to value i.
template <class Block>
void add_fifth_bits(Rows& rows) {
  const auto put = [&](std::string words, decltype(Decoding::alter) alter) {
    add<Block>(rows, "high_bits", std::move(words), alter);
  };
  put("exchanges the fifth bits of the two halves of a block",
      reorder<[](int i) { return i ^ 16; }, 16>);
  put("takes the fifth bits of the first half of a block for its second half too",
      reorder<[](int i) { return i % 16; }, 16>);
  put("takes the fifth bits of the second half of a block for its first half too",
      reorder<[](int i) { return 16 + i % 16; }, 16>);
  put("takes the 32 fifth bits in reverse", reorder<[](int i) { return 31 - i; }, 16>);
  put("takes the fifth bits of each byte in reverse", reorder<[](int i) { return i ^ 7; }, 16>);
  put("takes the four bytes of fifth bits in reverse", reorder<[](int i) { return i ^ 24; }, 16>);
  put("takes two neighbouring fifth bits for the two nibbles of a byte",
      reorder<[](int i) { return i % 16 * 2 + i / 16; }, 16>);
  add_high_bits<Block, 15>(rows);
  add<Block>(rows, "nibble_order",
             "takes the two nibbles of a byte as neighbouring values, with their fifth bits",
             reorder<[](int i) { return i / 2 + i % 2 * 16; }, 31>);
}

// d * q + m
template <class Block>
void add_plain_mins(Rows& rows) {
  add_mins<Block>(rows, "minimum", true);
  add<Block>(rows, "scale_min_swapped", "multiplies the minimum by the scale",
             [](const Place&, Parts& parts) { parts.d_min *= parts.d; });
}

Rows q4_0() {
  Rows rows;
  add_nibble_orders<32, 32, 15>(rows, BlockQ4_0::kFormat);
  add_offset<BlockQ4_0, 0>(rows);
  add_offset<BlockQ4_0, 16>(rows);
  add_offset<BlockQ4_0, 7>(rows);
  add_offset<BlockQ4_0, 4>(rows);
  add_offset<BlockQ4_0, 128>(rows);
  add_signed_codes<BlockQ4_0, 4>(rows);
  add_unmasked<BlockQ4_0>(rows);
  add_block_scales<BlockQ4_0, 2>(rows);
  return rows;
}

Rows q4_1() {
  Rows rows;
  add_nibble_orders<32, 32, 15>(rows, BlockQ4_1::kFormat);
  add_plain_mins<BlockQ4_1>(rows);
  add_offset<BlockQ4_1, 8>(rows);
  add_signed_codes<BlockQ4_1, 4>(rows);
  add_unmasked<BlockQ4_1>(rows);
  add_block_scales<BlockQ4_1, 4>(rows);
  return rows;
}

Rows q5_0() {
  Rows rows;
  add_nibble_orders<32, 32, 15>(rows, BlockQ5_0::kFormat);
  add_fifth_bits<BlockQ5_0>(rows);
  add<BlockQ5_0>(rows, "high_bits", "leaves the fifth bits out, and subtracts 8",
                 [](const Place&, Parts& parts) {
                   parts.offset = 8;
                   for (int& code : parts.codes) code &= 15;
                 });
  add_offset<BlockQ5_0, 0>(rows);
  add_offset<BlockQ5_0, 8>(rows);
  add_offset<BlockQ5_0, 32>(rows);
  add_offset<BlockQ5_0, 15>(rows);
  add_offset<BlockQ5_0, 128>(rows);
  add_unmasked<BlockQ5_0>(rows);
  add_block_scales<BlockQ5_0, 2>(rows);
  return rows;
}

Rows q5_1() {
  Rows rows;
  add_nibble_orders<32, 32, 15>(rows, BlockQ5_1::kFormat);
  add_fifth_bits<BlockQ5_1>(rows);
  add_plain_mins<BlockQ5_1>(rows);
  add_offset<BlockQ5_1, 16>(rows);
  add_offset<BlockQ5_1, 8>(rows);
  add_signed_codes<BlockQ5_1, 5>(rows);
  add_unmasked<BlockQ5_1>(rows);
  add_block_scales<BlockQ5_1, 4>(rows);
  return rows;
}

// Scales as four bytes, where the file has two: in place, or in blocks of 36 bytes.
float read_float(const op::Weight& weight, int64_t at) {
  float out = 0;
  if (at + 4 <= std::ssize(weight.data)) std::memcpy(&out, weight.data.data() + at, 4);
  return out;
}

void scale_of_four_bytes(const Place& place, Parts& parts) {
  const BlockQ8_0 block = place.read<BlockQ8_0>();
  std::memcpy(&parts.d, &block, 4);
}

void blocks_of_36_bytes(const Place& place, Parts& parts) {
  const int64_t at = (place.row * (place.weight.columns / 32) + place.block) * 36;
  parts.d = read_float(place.weight, at);
  for (int i = 0; i < 32; ++i) {
    const int64_t byte = at + 4 + i;
    parts.codes[i] = byte < std::ssize(place.weight.data)
                         ? static_cast<int8_t>(place.weight.data[static_cast<size_t>(byte)])
                         : 0;
  }
}

Rows q8_0() {
  Rows rows;
  using Block = BlockQ8_0;
  add<Block>(rows, "block_scale",
             "reads the block's scale as f32, its codes in their place (it is f16)",
             scale_of_four_bytes);
  add<Block>(rows, "block_scale",
             "reads blocks of 36 bytes with an f32 scale (they have 34, with f16)",
             blocks_of_36_bytes);
  add<Block>(rows, "offset", "takes the codes as numbers without a sign",
             [](const Place&, Parts& parts) {
               for (int& code : parts.codes) code &= 255;
             });
  add<Block>(rows, "offset", "takes the codes as numbers without a sign and subtracts 128",
             [](const Place&, Parts& parts) {
               parts.offset = 128;
               for (int& code : parts.codes) code &= 255;
             });
  add<Block>(rows, "offset", "takes the codes as numbers without a sign and subtracts 127",
             [](const Place&, Parts& parts) {
               parts.offset = 127;
               for (int& code : parts.codes) code &= 255;
             });
  add_offset<Block, 128>(rows);
  add<Block>(rows, "nibble_order", "exchanges the two halves of a block",
             reorder<[](int i) { return i ^ 16; }, -1>);
  add<Block>(rows, "nibble_order", "takes the codes of the two halves of a block in turn",
             reorder<[](int i) { return i / 2 + i % 2 * 16; }, -1>);
  add<Block>(rows, "nibble_order", "takes every second code for the first half of a block",
             reorder<[](int i) { return i % 16 * 2 + i / 16; }, -1>);
  add<Block>(rows, "nibble_order", "takes the codes of each four bytes in reverse",
             reorder<[](int i) { return i ^ 3; }, -1>);
  add_block_scales<Block, 2>(rows);
  return rows;
}

Rows iq4_nl() {
  Rows rows;
  add_nibble_orders<32, 32, 15>(rows, BlockIQ4_NL::kFormat);
  // Without the table, but for the offset, it is Q4_0: a row of the other kind.
  add<BlockIQ4_NL>(rows, "offset", "takes the codes as they are, without the table",
                   [](const Place&, Parts& parts) { parts.levels = nullptr; });
  add<BlockIQ4_NL>(rows, "offset",
                   "takes the codes with an offset of 8, times 16, without the table",
                   [](const Place&, Parts& parts) {
                     parts.levels = nullptr;
                     parts.offset = 8;
                     parts.scales[0] = 16;
                   });
  add<BlockIQ4_NL>(
      rows, "offset",
      "takes the codes as numbers with a sign, so that the halves of the table are exchanged",
      [](const Place&, Parts& parts) {
        for (int& code : parts.codes) code ^= 8;
      });
  add<BlockIQ4_NL>(rows, "offset", "reads the table of the format backwards",
                   [](const Place&, Parts& parts) {
                     for (int& code : parts.codes) code ^= 15;
                   });
  add_block_scales<BlockIQ4_NL, 2>(rows);
  return rows;
}

// 8-bit floating point, without a sign: four bits of exponent, three of fraction.
float small_float(int bits) {
  const int exponent = (bits >> 3) & 15;
  const auto fraction = static_cast<float>(bits & 7) / 8;
  return exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
}

template <int kShift>
void shifted_exponent(const Place&, Parts& parts) {
  parts.d = std::ldexp(parts.d, kShift);
}

Rows mxfp4() {
  Rows rows;
  using Block = BlockMXFP4;
  static constexpr int8_t kNoSign[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, 1, 2, 3, 4, 6, 8, 12};
  static constexpr int8_t kPlusFirst[16] = {0, -1, -2, -3, -4, -6, -8, -12,
                                            0, 1,  2,  3,  4,  6,  8,  12};
  static constexpr int8_t kLowSign[16] = {0, 0, 1, -1, 2, -2, 3, -3, 4, -4, 6, -6, 8, -8, 12, -12};
  static constexpr int8_t kSignAndSize[16] = {0, 2,  4,  6,  8,  10,  12,  14,
                                              0, -2, -4, -6, -8, -10, -12, -14};
  static constexpr int8_t kNoSubnormal[16] = {0, 3,  2,  3,  4,  6,  8,  12,
                                              0, -3, -2, -3, -4, -6, -8, -12};
  add_nibble_orders<32, 32, 15>(rows, Block::kFormat);
  add<Block>(rows, "block_scale",
             "takes an exponent that is one too large, or does not halve the doubled table",
             shifted_exponent<1>);
  add<Block>(rows, "block_scale", "takes an exponent that is one too small", shifted_exponent<-1>);
  add<Block>(rows, "block_scale", "takes an exponent that is two too small", shifted_exponent<-2>);
  add<Block>(rows, "block_scale", "takes the exponent with the wrong sign",
             [](const Place& place, Parts& parts) {
               parts.d = std::ldexp(0.5f, 127 - place.read<Block>().exponent);
             });
  add<Block>(rows, "block_scale", "reads the byte of the scale as an 8-bit float (e4m3)",
             [](const Place& place, Parts& parts) {
               parts.d = small_float(place.read<Block>().exponent) / 2;
             });
  add<Block>(rows, "block_scale", "reads the byte of the scale as a whole number",
             [](const Place& place, Parts& parts) {
               parts.d = static_cast<float>(place.read<Block>().exponent) / 2;
             });
  add<Block>(rows, "offset",
             "takes the codes as numbers with a sign (two's complement), without the table",
             [](const Place&, Parts& parts) {
               parts.levels = nullptr;
               parts.scales[0] = 2;
               for (int& code : parts.codes) code = code >= 8 ? code - 16 : code;
             });
  add<Block>(rows, "offset", "takes the codes with an offset of 8, without the table",
             [](const Place&, Parts& parts) {
               parts.levels = nullptr;
               parts.offset = 8;
               parts.scales[0] = 2;
             });
  const auto table = [&]<const int8_t * kTable>(const char* words) {
    add<Block>(rows, "offset", words, [](const Place&, Parts& parts) { parts.levels = kTable; });
  };
  table.template operator()<kNoSign>("loses the signs of the values");
  table.template operator()<kPlusFirst>("takes the sign bit of the values inverted");
  table.template operator()<kLowSign>("takes the lowest bit of a code as its sign");
  table.template operator()<kSignAndSize>(
      "takes the codes as a sign and a whole number, without the table");
  table.template operator()<kNoSubnormal>("takes the value 0.5 for 1.5 (it is subnormal)");
  table.template operator()<kIq4Levels>("takes the table of IQ4_NL");
  add_block_scales<Block, 1>(rows);
  return rows;
}

}  // namespace

Rows small_rows() {
  Rows out;
  for (Rows rows : {q4_0(), q4_1(), q5_0(), q5_1(), q8_0(), iq4_nl(), mxfp4()})
    std::ranges::move(rows, std::back_inserter(out));
  return out;
}

}  // namespace lockstep::doctor
