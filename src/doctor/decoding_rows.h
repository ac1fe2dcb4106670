// Rows of the table of decodings that several formats have.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "doctor/decoding_parts.h"
#include "doctor/decodings.h"

namespace lockstep::doctor {

using Rows = std::vector<Decoding>;

Rows small_rows();  // of the formats of 32 values
Rows super_rows();  // and of 256

template <class Block>
void add(Rows& rows, std::string_view how, std::string words, decltype(Decoding::alter) alter) {
  rows.push_back({Block::kFormat, how, std::move(words), alter});
}

// The bits of `mask` in each code are those of the value at From(i), for value i.
template <auto From, int Mask>
void reorder(const Place&, Parts& parts) {
  const Parts old = parts;
  for (int i = 0; i < parts.values; ++i)
    parts.codes[i] = (old.codes[From(i)] & Mask) | (old.codes[i] & ~Mask);
}

enum class Of { kBoth, kScales, kMins };

// Group g has the scale and the min of group From(g, number of groups).
template <auto From, Of What = Of::kBoth>
void regroup(const Place&, Parts& parts) {
  const Parts old = parts;
  for (int g = 0; g < parts.groups(); ++g) {
    if (What != Of::kMins) parts.scales[g] = old.scales[From(g, parts.groups())];
    if (What != Of::kScales) parts.mins[g] = old.mins[From(g, parts.groups())];
  }
}

// Where a value's bits lie: in which byte, and in which nibble or pair of bits of it.
struct Where {
  int byte;
  int part;
};

// Nibbles: the low ones of some bytes, then their high ones, for kValues at a time.
template <int kValues>
constexpr Where halves_of(int i) {
  return {i / kValues * (kValues / 2) + i % (kValues / 2), i % kValues / (kValues / 2)};
}
template <int kValues>
constexpr int nibble_index(Where w) {
  return w.byte / (kValues / 2) * kValues + w.part * (kValues / 2) + w.byte % (kValues / 2);
}

// The nibbles of a format that lies in halves of kTrue values, as if in halves of kOther; 2: two
// neighbours a byte.
template <int kTrue, int kOther, bool kFlipped, int kMask>
void add_nibbles(Rows& rows, quant::Format format) {
  std::string words =
      kOther == 2 ? std::string("takes the two nibbles of a byte as neighbouring values")
                  : "takes the nibbles of " + std::to_string(kOther / 2) +
                        " bytes as two runs of values, one of the low nibbles and one of the high";
  words += kFlipped ? ", the high nibble first" : ", the low nibble first";
  constexpr auto kFrom = [](int i) {
    Where w = halves_of<kOther>(i);
    if (kFlipped) w.part = 1 - w.part;
    return nibble_index<kTrue>(w);
  };
  rows.push_back({format, "nibble_order", std::move(words), reorder<kFrom, kMask>});
}

// All orders but the true one. `kBlock`: values of a block.
template <int kTrue, int kBlock, int kMask>
void add_nibble_orders(Rows& rows, quant::Format format) {
  add_nibbles<kTrue, 2, false, kMask>(rows, format);
  add_nibbles<kTrue, 2, true, kMask>(rows, format);
  add_nibbles<kTrue, kTrue, true, kMask>(rows, format);
  if constexpr (kBlock == 256) {
    const auto other = [&]<int kOther>() {
      if constexpr (kOther != kTrue) {
        add_nibbles<kTrue, kOther, false, kMask>(rows, format);
        add_nibbles<kTrue, kOther, true, kMask>(rows, format);
      }
    };
    other.template operator()<32>();
    other.template operator()<64>();
    other.template operator()<128>();
    other.template operator()<256>();
  }
}

// Pairs of bits: as quant::two_bits, or otherwise. kValues 4: four neighbours a byte.
template <int kValues, bool kFlipped>
constexpr int pair_from(int i) {
  constexpr int kQuarter = kValues / 4;
  const int byte = i / kValues * kQuarter + i % kQuarter;
  int part = i % kValues / kQuarter;
  if (kFlipped) part = 3 - part;
  return byte / 32 * 128 + part * 32 + byte % 32;
}

// `what`: "codes", or "high bits of the codes".
template <int kMask>
void add_pair_orders(Rows& rows, quant::Format format, std::string_view how,
                     const std::string& what) {
  const auto put = [&](std::string words, decltype(Decoding::alter) alter) {
    rows.push_back({format, how, std::move(words), alter});
  };
  put("takes the four " + what + " of a byte as neighbouring values, the lowest bits first",
      reorder<pair_from<4, false>, kMask>);
  put("takes the four " + what + " of a byte as neighbouring values, the highest bits first",
      reorder<pair_from<4, true>, kMask>);
  put("takes the four " + what + " of a byte in reverse", reorder<pair_from<128, true>, kMask>);
  put("spreads the " + what + " of a byte over the whole block instead of its half",
      reorder<pair_from<256, false>, kMask>);
  put("takes the " + what + " of the second half of the block from the bytes of the first",
      reorder<[](int i) { return i % 128; }, kMask>);
}

// A scale as another function of the bits of its half-precision number.
template <class Block, auto Convert>
void convert_scale(const Place& place, Parts& parts) {
  const Block block = place.read<Block>();
  parts.d = Convert(block.d);
  if constexpr (requires { block.d_min; }) parts.d_min = Convert(block.d_min);
  if constexpr (requires { block.m; }) parts.d_min = Convert(block.m);
}

template <class Block, int kOther>
void scale_of_other(const Place& place, Parts& parts) {
  const Parts other = parts_of(place.read<Block>(kOther < 0 && place.block == 0 ? 0
                                                 : kOther == 0                  ? -place.block
                                                                                : kOther));
  parts.d = other.d;
  parts.d_min = other.d_min;
}

// The block's own scale at the other end of the block: bytes turned by the size of the scale.
template <class Block, int kBytes>
void rotate_block(const Place& place, Parts& parts) {
  Block block = place.read<Block>();
  uint8_t bytes[sizeof block];
  std::memcpy(bytes, &block, sizeof block);
  std::rotate(bytes, kBytes > 0 ? bytes + sizeof block - kBytes : bytes - kBytes,
              bytes + sizeof block);
  std::memcpy(&block, bytes, sizeof block);
  parts = parts_of(block);
}

inline float flushed_half(uint16_t bits) {
  return (bits & 0x7c00u) == 0 ? 0 : half_to_float(bits);
}

// Small halves with the leading one that only normal numbers have.
inline float never_subnormal(uint16_t bits) {
  if ((bits & 0x7c00u) != 0 || (bits & 0x7fffu) == 0) return half_to_float(bits);
  return (bits & 0x8000u ? -0x1p-15f : 0x1p-15f) * (1 + static_cast<float>(bits & 0x3ffu) / 1024);
}

// `kBytes`: of the scale at the start of a block; negative: at its end.
template <class Block, int kBytes>
void add_block_scales(Rows& rows) {
  const char* end = kBytes > 0 ? "end" : "start";
  const char* where = kBytes > 0 ? "start" : "end";
  add<Block>(rows, "block_scale",
             std::string("reads the block's scale at the ") + end +
                 " of the block (it lies at its " + where + ")",
             rotate_block<Block, kBytes>);
  add<Block>(rows, "block_scale", "takes the scale of the next block", scale_of_other<Block, 1>);
  add<Block>(rows, "block_scale", "takes the scale of the block before", scale_of_other<Block, -1>);
  add<Block>(rows, "block_scale", "takes the scale of a row's first block for all its blocks",
             scale_of_other<Block, 0>);
  add<Block>(rows, "block_scale", "leaves the block's scale out",
             [](const Place&, Parts& parts) { parts.d = 1; });
  if constexpr (requires(Block block) { block.d; }) {
    add<Block>(rows, "block_scale", "reads the block's scale as bf16 (it is f16)",
               convert_scale<Block, bfloat_to_float>);
    add<Block>(rows, "block_scale", "reads the two bytes of the block's scale in the other order",
               convert_scale<Block, [](uint16_t bits) {
                 return half_to_float(static_cast<uint16_t>(bits << 8 | bits >> 8));
               }>);
    add<Block>(rows, "block_scale", "loses the sign of the block's scale",
               convert_scale<Block, [](uint16_t bits) {
                 return half_to_float(static_cast<uint16_t>(bits & 0x7fff));
               }>);
    add<Block>(rows, "block_scale",
               "takes scales that are subnormal in half precision (below 6.1e-5) for zero",
               convert_scale<Block, flushed_half>);
    add<Block>(rows, "block_scale",
               "converts scales that are subnormal in half precision (below 6.1e-5) as if normal",
               convert_scale<Block, never_subnormal>);
  }
}

template <class Block, int kOffset>
void add_offset(Rows& rows) {
  add<Block>(rows, "offset",
             kOffset == 0 ? std::string("subtracts no offset from the codes")
                          : "subtracts " + std::to_string(kOffset) + " from the codes",
             [](const Place&, Parts& parts) { parts.offset = kOffset; });
}

// Codes of kBits bits as whole numbers with a sign.
template <class Block, int kBits>
void add_signed_codes(Rows& rows) {
  add<Block>(rows, "offset", "takes the codes as numbers with a sign (two's complement)",
             [](const Place&, Parts& parts) {
               parts.offset = 0;
               for (int& code : parts.codes)
                 if (code >= 1 << (kBits - 1)) code -= 1 << kBits;
             });
}

// The bits above the low ones: from another value, or altered.
template <class Block, int kLow>
void add_high_bits(Rows& rows) {
  add<Block>(rows, "high_bits", "leaves the high bits of the codes out",
             [](const Place&, Parts& parts) {
               for (int& code : parts.codes) code &= kLow;
             });
  add<Block>(rows, "high_bits", "reads the high bits of the codes inverted",
             [](const Place&, Parts& parts) {
               const int high = kLow == 15 && parts.offset == 32 ? 3 : 1;
               for (int i = 0; i < parts.values; ++i) parts.codes[i] ^= high * (kLow + 1);
             });
  add<Block>(rows, "high_bits", "puts the high bits of the codes one place too low",
             [](const Place&, Parts& parts) {
               for (int& code : parts.codes) code = (code & kLow) | (code & ~kLow) >> 1;
             });
  add<Block>(rows, "high_bits", "puts the high bits of the codes one place too high",
             [](const Place&, Parts& parts) {
               for (int& code : parts.codes) code = (code & kLow) | (code & ~kLow) << 1;
             });
}

// Of formats whose blocks have groups with scales of their own. `what`: "scale", or "scale and
// min"; `many`: more than one of them.
template <class Block>
void add_group_orders(Rows& rows, const std::string& what, const std::string& many) {
  const auto put = [&](std::string words, decltype(Decoding::alter) alter) {
    add<Block>(rows, "scale_order", std::move(words), alter);
  };
  put("takes the " + what + " of the next group of values",
      regroup<[](int g, int n) { return (g + 1) % n; }>);
  put("takes the " + what + " of the group before",
      regroup<[](int g, int n) { return (g + n - 1) % n; }>);
  put("exchanges the " + what + " of neighbouring groups",
      regroup<[](int g, int) { return g ^ 1; }>);
  put("takes the " + what + " of the first of two groups for both",
      regroup<[](int g, int) { return g & ~1; }>);
  put("takes the " + many + " of a block's first half for its second half too",
      regroup<[](int g, int n) { return g % (n / 2); }>);
  put("exchanges the " + many + " of the two halves of a block",
      regroup<[](int g, int n) { return (g + n / 2) % n; }>);
  put("takes the " + many + " in reverse", regroup<[](int g, int n) { return n - 1 - g; }>);
  put("takes the " + many +
          " of the first half of a block for the even groups, the others for the odd",
      regroup<[](int g, int n) { return g / 2 + n / 2 * (g % 2); }>);
  put("takes every second " + what + " for the first half of a block",
      regroup<[](int g, int n) { return g % (n / 2) * 2 + g / (n / 2); }>);
  put("leaves the scales of the groups out", [](const Place&, Parts& parts) {
    for (int& scale : parts.scales) scale = 1;
  });
}

// Of formats with mins.
template <class Block>
void add_mins(Rows& rows, const std::string& min, bool added) {
  add<Block>(
      rows, "scale_min_swapped",
      added ? "subtracts the " + min + " (it is added)" : "adds the " + min + " (it is subtracted)",
      [](const Place&, Parts& parts) { parts.d_min = -parts.d_min; });
  add<Block>(rows, "scale_min_swapped", "leaves the " + min + " out",
             [](const Place&, Parts& parts) { parts.d_min = 0; });
  add<Block>(rows, "scale_min_swapped",
             "exchanges the block's two half-precision numbers, scale and " + min,
             [](const Place&, Parts& parts) { std::swap(parts.d, parts.d_min); });
}

template <class Block>
void add_group_mins(Rows& rows) {
  add_mins<Block>(rows, "min", false);
  add<Block>(rows, "scale_min_swapped", "exchanges the scales and the mins of the groups",
             [](const Place&, Parts& parts) { std::swap(parts.scales, parts.mins); });
  add<Block>(rows, "scale_min_swapped", "multiplies the mins by the scale of the block",
             [](const Place&, Parts& parts) { parts.d_min = parts.d; });
  add<Block>(rows, "scale_min_swapped", "multiplies the min by the scale of its group",
             [](const Place&, Parts& parts) {
               for (int g = 0; g < parts.groups(); ++g) parts.mins[g] *= parts.scales[g];
             });
  add<Block>(rows, "scale_order", "takes the scale of the next group, the min of its own",
             regroup<[](int g, int n) { return (g + 1) % n; }, Of::kScales>);
  add<Block>(rows, "scale_order", "takes the min of the next group, the scale of its own",
             regroup<[](int g, int n) { return (g + 1) % n; }, Of::kMins>);
}

}  // namespace lockstep::doctor
