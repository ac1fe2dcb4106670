// The formats of 256 values.
#include "doctor/decoding_rows.h"

namespace lockstep::doctor {
namespace {

using quant::BlockIQ4_XS;
using quant::BlockQ2_K;
using quant::BlockQ3_K;
using quant::BlockQ4_K;
using quant::BlockQ5_K;
using quant::BlockQ6_K;

// Number `index` of a run of six-bit numbers without gaps.
int six_bits(const uint8_t* bytes, int index, bool lowest_first) {
  int out = 0;
  for (int b = 0; b < 6; ++b) {
    const int bit = index * 6 + b;
    const int shift = lowest_first ? bit % 8 : 7 - bit % 8;
    out |= ((bytes[bit / 8] >> shift) & 1) << (lowest_first ? b : 5 - b);
  }
  return out;
}

// Sets scales and mins from what a function of the packed bytes and the group gives.
template <class Block, auto Scale, auto Min>
void repack(const Place& place, Parts& parts) {
  const Block block = place.read<Block>();
  for (int g = 0; g < 8; ++g) {
    parts.scales[g] = Scale(block.scales, g);
    parts.mins[g] = Min(block.scales, g);
  }
}

// The twelve bytes of Q4_K and Q5_K.
template <class Block>
void add_packings(Rows& rows) {
  constexpr auto kScale = quant::six_bit_scale;
  constexpr auto kMin = quant::six_bit_min;
  const auto put = [&](std::string words, decltype(Decoding::alter) alter) {
    add<Block>(rows, "scale_order", std::move(words), alter);
  };
  put("leaves out the two high bits of the scales and mins of groups 4 to 7",
      repack<Block, [](const uint8_t* p, int g) { return kScale(p, g) & (g < 4 ? 63 : 15); },
             [](const uint8_t* p, int g) { return kMin(p, g) & (g < 4 ? 63 : 15); }>);
  put("exchanges the two high bits of scale and min of groups 4 to 7",
      repack<Block,
             [](const uint8_t* p, int g) {
               return g < 4 ? kScale(p, g) : (kScale(p, g) & 15) | (kMin(p, g) & 48);
             },
             [](const uint8_t* p, int g) {
               return g < 4 ? kMin(p, g) : (kMin(p, g) & 15) | (kScale(p, g) & 48);
             }>);
  put("exchanges the four low bits of scale and min of groups 4 to 7",
      repack<Block,
             [](const uint8_t* p, int g) {
               return g < 4 ? kScale(p, g) : (kMin(p, g) & 15) | (kScale(p, g) & 48);
             },
             [](const uint8_t* p, int g) {
               return g < 4 ? kMin(p, g) : (kScale(p, g) & 15) | (kMin(p, g) & 48);
             }>);
  put("takes scale for min and min for scale in groups 4 to 7",
      repack<Block, [](const uint8_t* p, int g) { return g < 4 ? kScale(p, g) : kMin(p, g); },
             [](const uint8_t* p, int g) { return g < 4 ? kMin(p, g) : kScale(p, g); }>);
  put("takes whole bytes, not their low six bits, for the scales and mins of groups 0 to 3",
      repack<Block, [](const uint8_t* p, int g) { return g < 4 ? p[g] : kScale(p, g); },
             [](const uint8_t* p, int g) { return g < 4 ? p[g + 4] : kMin(p, g); }>);
  put("takes the two high bits of the scales and mins of groups 4 to 7 from the low end of their "
      "bytes",
      repack<Block,
             [](const uint8_t* p, int g) {
               return g < 4 ? kScale(p, g) : (kScale(p, g) & 15) | (p[g - 4] & 3) << 4;
             },
             [](const uint8_t* p, int g) {
               return g < 4 ? kMin(p, g) : (kMin(p, g) & 15) | (p[g] & 3) << 4;
             }>);
  put("puts the two high bits of the scales and mins of groups 4 to 7 below the low ones",
      repack<Block,
             [](const uint8_t* p, int g) {
               return g < 4 ? kScale(p, g) : (kScale(p, g) & 15) << 2 | (kScale(p, g) >> 4);
             },
             [](const uint8_t* p, int g) {
               return g < 4 ? kMin(p, g) : (kMin(p, g) & 15) << 2 | (kMin(p, g) >> 4);
             }>);
  put("takes the twelve bytes as eight six-bit scales and then eight six-bit mins without gaps",
      repack<Block, [](const uint8_t* p, int g) { return six_bits(p, g, true); },
             [](const uint8_t* p, int g) { return six_bits(p, 8 + g, true); }>);
  put("takes the twelve bytes as eight pairs of six-bit scale and min without gaps",
      repack<Block, [](const uint8_t* p, int g) { return six_bits(p, 2 * g, true); },
             [](const uint8_t* p, int g) { return six_bits(p, 2 * g + 1, true); }>);
  put("takes the twelve bytes as six-bit scales and then mins without gaps, the highest bits first",
      repack<Block, [](const uint8_t* p, int g) { return six_bits(p, g, false); },
             [](const uint8_t* p, int g) { return six_bits(p, 8 + g, false); }>);
}

// High bit of value i in bit i / 32 of byte i % 32.
template <class Block, int kBit>
void add_bit_planes(Rows& rows) {
  const auto put = [&](std::string words, decltype(Decoding::alter) alter) {
    add<Block>(rows, "high_bits", std::move(words), alter);
  };
  put("takes the high bits of each byte in reverse", reorder<[](int i) { return i ^ 224; }, kBit>);
  put("takes the eight high bits of a byte as those of neighbouring values, the lowest first",
      reorder<[](int i) { return i / 8 + i % 8 * 32; }, kBit>);
  put("takes the eight high bits of a byte as those of neighbouring values, the highest first",
      reorder<[](int i) { return i / 8 + (7 - i % 8) * 32; }, kBit>);
  put("exchanges the high bits of neighbouring groups of 32 values",
      reorder<[](int i) { return i ^ 32; }, kBit>);
  put("takes the high bits of the first of two groups of 32 values for both",
      reorder<[](int i) { return i & ~32; }, kBit>);
  put("takes the high bits of the first of two groups of 32 values for the first 64, in the order "
      "of groups",
      reorder<[](int i) { return i % 32 + i / 64 * 32; }, kBit>);
  put("takes the high bits of the first half of a block for its second half too",
      reorder<[](int i) { return i % 128; }, kBit>);
  put("exchanges the high bits of the two halves of a block",
      reorder<[](int i) { return i ^ 128; }, kBit>);
  put("takes the high bits of the first group of 32 values for all",
      reorder<[](int i) { return i % 32; }, kBit>);
}

Rows q2_k() {
  Rows rows;
  add_pair_orders<3>(rows, BlockQ2_K::kFormat, "nibble_order", "codes");
  add_group_mins<BlockQ2_K>(rows);
  add_group_orders<BlockQ2_K>(rows, "scale and min", "scales and mins");
  add_offset<BlockQ2_K, 2>(rows);
  add_offset<BlockQ2_K, 1>(rows);
  add_signed_codes<BlockQ2_K, 2>(rows);
  add_block_scales<BlockQ2_K, -4>(rows);
  return rows;
}

template <auto Scale>
void rescale_q3_k(const Place& place, Parts& parts) {
  const BlockQ3_K block = place.read<BlockQ3_K>();
  for (int g = 0; g < 16; ++g) parts.scales[g] = Scale(block.scales, g);
}

int q3_low(const uint8_t* p, int g) {
  return (p[g % 8] >> (g / 8 * 4)) & 15;
}
int q3_high(const uint8_t* p, int g) {
  return (p[8 + g % 4] >> (g / 4 * 2)) & 3;
}

void add_q3_k_scales(Rows& rows) {
  const auto put = [&](std::string words, decltype(Decoding::alter) alter) {
    add<BlockQ3_K>(rows, "scale_order", std::move(words), alter);
  };
  put("leaves out the two high bits of the scales",
      rescale_q3_k<[](const uint8_t* p, int g) { return q3_low(p, g) - 32; }>);
  put("leaves out the two high bits of the scales, and subtracts 8 from them",
      rescale_q3_k<[](const uint8_t* p, int g) { return q3_low(p, g) - 8; }>);
  put("takes the two high bits of four neighbouring scales from one byte",
      rescale_q3_k<[](const uint8_t* p, int g) {
        return (q3_low(p, g) | ((p[8 + g / 4] >> (g % 4 * 2)) & 3) << 4) - 32;
      }>);
  put("takes the four low bits of two neighbouring scales from one byte",
      rescale_q3_k<[](const uint8_t* p, int g) {
        return (((p[g / 2] >> (g % 2 * 4)) & 15) | q3_high(p, g) << 4) - 32;
      }>);
  put("takes the low and the high bits of neighbouring scales from one byte each",
      rescale_q3_k<[](const uint8_t* p, int g) {
        return (((p[g / 2] >> (g % 2 * 4)) & 15) | ((p[8 + g / 4] >> (g % 4 * 2)) & 3) << 4) - 32;
      }>);
  put("exchanges the two high bits of the scales of the halves of a block",
      rescale_q3_k<[](const uint8_t* p, int g) {
        return (q3_low(p, g) | q3_high(p, g ^ 8) << 4) - 32;
      }>);
  put("takes the two high bits of the scales in reverse in each byte",
      rescale_q3_k<[](const uint8_t* p, int g) {
        return (q3_low(p, g) | q3_high(p, g ^ 12) << 4) - 32;
      }>);
  put("takes the twelve bytes as 16 six-bit scales without gaps",
      rescale_q3_k<[](const uint8_t* p, int g) { return six_bits(p, g, true) - 32; }>);
  put("takes the twelve bytes as 16 six-bit scales without gaps, the highest bits first",
      rescale_q3_k<[](const uint8_t* p, int g) { return six_bits(p, g, false) - 32; }>);
  put("subtracts no 32 from the scales",
      rescale_q3_k<[](const uint8_t* p, int g) { return q3_low(p, g) | q3_high(p, g) << 4; }>);
  put("subtracts 16 from the scales, not 32", rescale_q3_k<[](const uint8_t* p, int g) {
        return (q3_low(p, g) | q3_high(p, g) << 4) - 16;
      }>);
  put("takes the scales as six-bit numbers with a sign", rescale_q3_k<[](const uint8_t* p, int g) {
        const int scale = q3_low(p, g) | q3_high(p, g) << 4;
        return scale < 32 ? scale : scale - 64;
      }>);
}

Rows q3_k() {
  Rows rows;
  add_pair_orders<3>(rows, BlockQ3_K::kFormat, "nibble_order", "codes");
  add_high_bits<BlockQ3_K, 3>(rows);
  add_bit_planes<BlockQ3_K, 4>(rows);
  add<BlockQ3_K>(rows, "high_bits", "leaves the high bits of the codes out, and the offset of 4",
                 [](const Place&, Parts& parts) {
                   parts.offset = 0;
                   for (int& code : parts.codes) code &= 3;
                 });
  add_q3_k_scales(rows);
  add_group_orders<BlockQ3_K>(rows, "scale", "scales");
  add_offset<BlockQ3_K, 0>(rows);
  add_offset<BlockQ3_K, 2>(rows);
  add_offset<BlockQ3_K, 3>(rows);
  add_offset<BlockQ3_K, 8>(rows);
  add_block_scales<BlockQ3_K, -2>(rows);
  return rows;
}

Rows q4_k() {
  Rows rows;
  add_nibble_orders<64, 256, 15>(rows, BlockQ4_K::kFormat);
  add_packings<BlockQ4_K>(rows);
  add_group_mins<BlockQ4_K>(rows);
  add_group_orders<BlockQ4_K>(rows, "scale and min", "scales and mins");
  add_offset<BlockQ4_K, 8>(rows);
  add_signed_codes<BlockQ4_K, 4>(rows);
  add_block_scales<BlockQ4_K, 4>(rows);
  return rows;
}

Rows q5_k() {
  Rows rows;
  add_nibble_orders<64, 256, 15>(rows, BlockQ5_K::kFormat);
  add_bit_planes<BlockQ5_K, 16>(rows);
  add_high_bits<BlockQ5_K, 15>(rows);
  add_packings<BlockQ5_K>(rows);
  add_group_mins<BlockQ5_K>(rows);
  add_group_orders<BlockQ5_K>(rows, "scale and min", "scales and mins");
  add_offset<BlockQ5_K, 16>(rows);
  add_offset<BlockQ5_K, 8>(rows);
  add_signed_codes<BlockQ5_K, 5>(rows);
  add_block_scales<BlockQ5_K, 4>(rows);
  return rows;
}

Rows q6_k() {
  Rows rows;
  using Block = BlockQ6_K;
  add_nibble_orders<128, 256, 15>(rows, Block::kFormat);
  add_pair_orders<48>(rows, Block::kFormat, "high_bits", "high bits of the codes");
  add<Block>(rows, "high_bits",
             "exchanges the high bits of the second and the third quarter of a half",
             reorder<[](int i) {
               const int quarter = i % 128 / 32;
               return quarter == 1 ? i + 32 : quarter == 2 ? i - 32 : i;
             },
                     48>);
  add<Block>(rows, "high_bits", "exchanges the high bits of neighbouring quarters of a half",
             reorder<[](int i) { return i ^ 32; }, 48>);
  add<Block>(rows, "high_bits", "exchanges the high bits of the two halves of a block",
             reorder<[](int i) { return i ^ 128; }, 48>);
  add_high_bits<Block, 15>(rows);
  add<Block>(rows, "high_bits", "leaves the high bits of the codes out, and subtracts 8",
             [](const Place&, Parts& parts) {
               parts.offset = 8;
               for (int& code : parts.codes) code &= 15;
             });
  add<Block>(rows, "scale_order", "takes the scales of the groups as numbers without a sign",
             [](const Place&, Parts& parts) {
               for (int& scale : parts.scales) scale &= 255;
             });
  add_group_orders<Block>(rows, "scale", "scales");
  add_offset<Block, 0>(rows);
  add_offset<Block, 16>(rows);
  add_offset<Block, 31>(rows);
  add_offset<Block, 64>(rows);
  add_offset<Block, 128>(rows);
  add_signed_codes<Block, 6>(rows);
  add_block_scales<Block, -2>(rows);
  return rows;
}

template <auto Scale>
void rescale_iq4_xs(const Place& place, Parts& parts) {
  const BlockIQ4_XS block = place.read<BlockIQ4_XS>();
  for (int g = 0; g < 8; ++g) {
    const int low = (block.scales_low[g / 2] >> (g % 2 * 4)) & 15;
    parts.scales[g] = Scale(block, low, g);
  }
}

int iq4_high(const BlockIQ4_XS& block, int g) {
  return ((block.scales_high >> (g * 2)) & 3) << 4;
}

Rows iq4_xs() {
  Rows rows;
  using Block = BlockIQ4_XS;
  const auto put = [&](std::string_view how, std::string words, decltype(Decoding::alter) alter) {
    add<Block>(rows, how, std::move(words), alter);
  };
  add_nibble_orders<32, 256, 15>(rows, Block::kFormat);
  put("scale_order", "subtracts no 32 from the scales",
      rescale_iq4_xs<[](const Block& b, int low, int g) { return low | iq4_high(b, g); }>);
  put("scale_order", "subtracts 16 from the scales, not 32",
      rescale_iq4_xs<[](const Block& b, int low, int g) { return (low | iq4_high(b, g)) - 16; }>);
  put("scale_order", "leaves out the two high bits of the scales",
      rescale_iq4_xs<[](const Block&, int low, int) { return low - 32; }>);
  put("scale_order", "leaves out the two high bits of the scales, and subtracts 8",
      rescale_iq4_xs<[](const Block&, int low, int) { return low - 8; }>);
  put("scale_order", "takes the two high bits of the scales in reverse",
      rescale_iq4_xs<[](const Block& b, int low, int g) {
        return (low | iq4_high(b, 7 - g)) - 32;
      }>);
  put("scale_order", "exchanges the high bits of neighbouring scales",
      rescale_iq4_xs<[](const Block& b, int low, int g) {
        return (low | iq4_high(b, g ^ 1)) - 32;
      }>);
  put("scale_order", "exchanges the high bits of the scales of the two halves of a block",
      rescale_iq4_xs<[](const Block& b, int low, int g) {
        return (low | iq4_high(b, g ^ 4)) - 32;
      }>);
  put("scale_order", "exchanges the low bits of neighbouring scales",
      rescale_iq4_xs<[](const Block& b, int, int g) {
        const int low = (b.scales_low[g / 2] >> ((1 - g % 2) * 4)) & 15;
        return (low | iq4_high(b, g)) - 32;
      }>);
  put("scale_order", "takes the low bits of scales g and g + 4 from one byte",
      rescale_iq4_xs<[](const Block& b, int, int g) {
        return (((b.scales_low[g % 4] >> (g / 4 * 4)) & 15) | iq4_high(b, g)) - 32;
      }>);
  put("scale_order", "takes the scales as six-bit numbers with a sign",
      rescale_iq4_xs<[](const Block& b, int low, int g) {
        const int scale = low | iq4_high(b, g);
        return scale < 32 ? scale : scale - 64;
      }>);
  put("offset", "takes the codes with an offset of 8, without the table",
      [](const Place&, Parts& parts) {
        parts.levels = nullptr;
        parts.offset = 8;
      });
  put("offset", "takes the codes as they are, without the table",
      [](const Place&, Parts& parts) { parts.levels = nullptr; });
  put("offset",
      "takes the codes as numbers with a sign, so that the halves of the table are exchanged",
      [](const Place&, Parts& parts) {
        for (int& code : parts.codes) code ^= 8;
      });
  put("offset", "reads the table of the format backwards", [](const Place&, Parts& parts) {
    for (int& code : parts.codes) code ^= 15;
  });
  add_group_orders<Block>(rows, "scale", "scales");
  add_block_scales<Block, 2>(rows);
  return rows;
}

}  // namespace

Rows super_rows() {
  Rows out;
  for (Rows rows : {q2_k(), q3_k(), q4_k(), q5_k(), q6_k(), iq4_xs()})
    std::ranges::move(rows, std::back_inserter(out));
  return out;
}

}  // namespace lockstep::doctor
