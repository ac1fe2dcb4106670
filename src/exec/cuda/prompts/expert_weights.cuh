// Weights of experts on their way to the tensor cores: a unit of 32 columns in a lane, four of its
// numbers at a time as halves.
#pragma once

#include "exec/cuda/shared/mma.cuh"
#include "exec/cuda/weights/unit.cuh"

namespace lockstep::exec::cuda {
namespace {

// Four numbers of a weight as halves: two words, and what is left of them where that counts.
struct FourHalves {
  uint32_t high[2], low[2];
};

__device__ inline uint32_t two_halves(float x, float y) {
  const __half2 two = __floats2half2_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&two);
}

// A row of a weight: its number, and those of its first unit and of its first block.
struct RowPlace {
  int64_t row;
  int units, blocks;
};

// A unit of a quantized weight, times a power of two.
template <quant::Format K>
struct ExpertCodes {
  static constexpr CodeFormat F = kCodesOf<K>;
  static constexpr bool kFloat = false;
  static constexpr int kTiles = 2;  // of 16 rows for a warp
  // At once on a multiprocessor: where codes are many bytes, registers are what is short.
  static constexpr int kBlocks = Unit<F>::kBytes.codes + Unit<F>::kBytes.extra > 20 ? 2 : 3;
  Unit<F> unit;

  __device__ void load(const WeightView& weight, const RowPlace& place, int at) {
    const auto units = static_cast<int>(weight.columns / kUnit);
    at = min(at, units - 1);
    unit.template load<false>(weight, place.units + at, place.blocks + at / kUnitsOfBlock);
  }

  // A code becomes a float by its bits. In the upper bits of a mantissa a code c below 128 is the
  // number 1 + c/128; what is too much goes into what is added to every number of the group. Other
  // codes go in the lowest bits of 2^23, which is then subtracted.
  static constexpr bool kSmall =
      F.levels == Levels::kMxfp4 || (F.levels == Levels::kPlain && F.bits < 8);
  static constexpr int kAdded = F.levels == Levels::kMxfp4 ? 64 : 0;  // to a code
  struct Scaled {
    float scales[Unit<F>::kGroups], mins[Unit<F>::kGroups];
  };
  // Unpacks the scales; a unit past the end becomes zeros.
  __device__ Scaled scaled(const WeightView& weight, int at, float scale) const {
    Scaled out;
    const float by = at < static_cast<int>(weight.columns / kUnit) ? scale : 0.0f;
#pragma unroll
    for (int group = 0; group < Unit<F>::kGroups; ++group) {
      const float of_group = unit.scale(group) * by;
      float min = 0;
      if constexpr (Unit<F>::kHasMin) min = unit.min(group) * by;
      out.scales[group] = kSmall ? 128 * of_group : of_group;
      out.mins[group] = kSmall ? fmaf(-(128.0f + kAdded + F.offset), of_group, min) : min;
    }
    return out;
  }
  // The columns 4i .. 4i+3.
  __device__ FourHalves four(const Scaled& by, int i) const {
    const int group = Unit<F>::kGroups == 1 ? 0 : i / 4;
    float out[4];
    if constexpr (kSmall) {
      uint32_t bytes = unit.four(i) ^ 0x80808080u;
      if constexpr (kAdded > 0) bytes += 0x01010101u * kAdded;  // no byte overflows
#pragma unroll
      for (uint32_t b = 0; b < 4; ++b)
        out[b] = fmaf(by.scales[group],
                      __uint_as_float(__byte_perm(bytes, 0x3f000000u, 0x7044u | b << 8)),
                      by.mins[group]);
    } else {
      const uint32_t bytes = unit.four(i) ^ 0x80808080u;
#pragma unroll
      for (uint32_t b = 0; b < 4; ++b) {
        const float level =
            __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7440u | b)) - (8388608.0f + 128);
        out[b] = by.scales[group] * level;
      }
    }
    return {{two_halves(out[0], out[1]), two_halves(out[2], out[3])}, {}};
  }
};

// The same of a weight in floating point: read where it is needed.
template <class T>
struct ExpertFloats {
  static constexpr bool kFloat = true, kSplitWeight = sizeof(T) == 4;
  static constexpr int kTiles = 1, kBlocks = 2;
  const uint8_t* from;
  int left;  // columns from the unit's first on

  __device__ void load(const WeightView& weight, const RowPlace& place, int at) {
    from = weight.codes +
           (place.row * weight.row_stride + at * kUnit) * static_cast<int64_t>(sizeof(T));
    left = static_cast<int>(weight.columns) - at * kUnit;
  }
  struct Scaled {
    float scale;
  };
  __device__ Scaled scaled(const WeightView&, int, float scale) const { return {scale}; }
  __device__ FourHalves four(const Scaled& by, int i) const {
    float4 out = {};
    if (4 * i < left) {
      if constexpr (sizeof(T) == 4) {
        out = __ldg(reinterpret_cast<const float4*>(from) + i);
      } else {
        const uint2 words = __ldg(reinterpret_cast<const uint2*>(from) + i);
        const auto number = [](uint32_t bits) {
          if constexpr (T::kFormat == quant::Format::kF16)
            return half_number(static_cast<uint16_t>(bits));
          else
            return __uint_as_float(bits << 16);
        };
        out = {number(words.x & 0xffffu), number(words.x >> 16), number(words.y & 0xffffu),
               number(words.y >> 16)};
      }
    }
    FourHalves halves;
    split(out.x * by.scale, out.y * by.scale, halves.high[0], halves.low[0]);
    split(out.z * by.scale, out.w * by.scale, halves.high[1], halves.low[1]);
    return halves;
  }
};

}  // namespace
}  // namespace lockstep::exec::cuda
