// A unit of a quantized weight (planes.h) in registers: its codes, its numbers, and its product
// with a unit of activations.
#pragma once

#include "exec/cuda/calls.h"
#include "exec/cuda/weights/planes.h"
#include "quant/blocks.h"

namespace lockstep::exec::cuda {
namespace {

template <quant::Format K>
constexpr CodeFormat kCodesOf = code_format(K);

// half_to_float() in one instruction.
__device__ inline float half_number(uint16_t bits) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
  return out;
}

// Four levels for the four low nibbles of `indices`, as bytes.
template <Levels L>
__device__ inline uint32_t look_up(uint32_t indices) {
  // Sixteen signed bytes, code 0 in the lowest.
  constexpr uint32_t kTable[4] = {L == Levels::kMxfp4 ? 0x03020100u : 0xbfad9881u,
                                  L == Levels::kMxfp4 ? 0x0c080604u : 0xf6eaddcfu,
                                  L == Levels::kMxfp4 ? 0xfdfeff00u : 0x26190d01u,
                                  L == Levels::kMxfp4 ? 0xf4f8fafcu : 0x71594535u};
  const uint32_t low = __byte_perm(kTable[0], kTable[1], indices & 0x7777u);
  const uint32_t high = __byte_perm(kTable[2], kTable[3], indices & 0x7777u);
  return __byte_perm(low, high, 0x3210u | ((indices >> 1) & 0x4444u));
}

// Numbers of which the next ones will be needed soon: the cache fetches all 256 bytes at once.
__device__ inline uint32_t read_with_neighbours(const uint32_t* from) {
  uint32_t out;
  asm("ld.global.nc.L2::256B.u32 %0, [%1];" : "=r"(out) : "l"(from));
  return out;
}
__device__ inline uint16_t read_with_neighbours(const uint16_t* from) {
  uint16_t out;
  asm("ld.global.nc.L2::256B.u16 %0, [%1];" : "=h"(out) : "l"(from));
  return out;
}
__device__ inline uint8_t read_with_neighbours(const uint8_t* from) {
  return __ldg(from);
}

template <CodeFormat F>
struct Unit {
  static constexpr UnitBytes kBytes = unit_bytes(F);
  static constexpr int kGroups = kUnit / F.group;

  uint32_t codes[kBytes.codes / 4];
  uint32_t extra[kBytes.extra > 0 ? kBytes.extra / 4 : 1];
  uint32_t scales;
  uint32_t block;

  // Unit number `index` of planes in the device's memory, read once, or in shared memory; its block
  // is number `place`.
  template <bool kShared, class Index>
  __device__ void load(const WeightView& w, Index index, Index place) {
    const auto read = [](const auto* from) {
      if constexpr (kShared)
        return *from;
      else
        return __ldcs(from);
    };
    const auto read_again = [](const auto* from) {
      if constexpr (kShared)
        return *from;
      else
        return read_with_neighbours(from);
    };
    if constexpr (kBytes.codes >= 16) {
#pragma unroll
      for (int i = 0; i < kBytes.codes / 16; ++i) {
        const uint4 four =
            read(reinterpret_cast<const uint4*>(w.codes) + index * (kBytes.codes / 16) + i);
        codes[4 * i] = four.x;
        codes[4 * i + 1] = four.y;
        codes[4 * i + 2] = four.z;
        codes[4 * i + 3] = four.w;
      }
    } else {
      const uint2 two = read(reinterpret_cast<const uint2*>(w.codes) + index);
      codes[0] = two.x;
      codes[1] = two.y;
    }
    if constexpr (kBytes.extra == 8) {
      const uint2 two = read(reinterpret_cast<const uint2*>(w.extra) + index);
      extra[0] = two.x;
      extra[1] = two.y;
    } else if constexpr (kBytes.extra == 4) {
      extra[0] = read(reinterpret_cast<const uint32_t*>(w.extra) + index);
    }
    if constexpr (kBytes.scales == 4)
      scales = read_again(reinterpret_cast<const uint32_t*>(w.scales) + index);
    else if constexpr (kBytes.scales == 2)
      scales = read_again(reinterpret_cast<const uint16_t*>(w.scales) + index);
    else
      scales = read_again(w.scales + index);
    if constexpr (kBytes.block == 4)
      block = read_again(reinterpret_cast<const uint32_t*>(w.blocks) + place);
    else if constexpr (kBytes.block == 2)
      block = read_again(reinterpret_cast<const uint16_t*>(w.blocks) + place);
  }
  __device__ void load(const WeightView& w, int64_t row, int64_t unit) {
    const int64_t units = w.columns / kUnit;
    load<false>(w, row * units + unit, row * (units / kUnitsOfBlock) + unit / kUnitsOfBlock);
  }

  // The codes of the columns 4i .. 4i+3 as bytes, signed where they can be negative.
  __device__ uint32_t four(int i) const {
    if constexpr (F.bits == 8) {
      return codes[i];
    } else if constexpr (F.levels != Levels::kPlain) {
      return look_up<F.levels>(codes[i / 2] >> (16 * (i % 2)));
    } else if constexpr (F.bits >= 4) {
      uint32_t out = (codes[i / 2] >> (4 * (i % 2))) & 0x0f0f0f0fu;
      if constexpr (F.bits == 6) out |= ((extra[i / 4] >> (2 * (i % 4))) & 0x03030303u) << 4;
      if constexpr (F.bits == 5) out |= ((extra[0] >> i) & 0x01010101u) << 4;
      return out;
    } else {
      uint32_t out = (codes[i / 4] >> (2 * (i % 4))) & 0x03030303u;
      if constexpr (F.bits == 3) out |= ((extra[0] >> i) & 0x01010101u) << 2;
      return out;
    }
  }

  static __device__ float half(uint32_t bits) {
    return half_number(static_cast<uint16_t>(bits));
  }

  __device__ float scale(int group) const {
    if constexpr (F.scales == Scales::kHalf || F.scales == Scales::kHalfMin) {
      return half(scales & 0xffffu);
    } else if constexpr (F.scales == Scales::kExponent) {
      return quant::mxfp4_half_scale(static_cast<int>(scales));
    } else if constexpr (F.scales == Scales::kSuper) {
      return half(block) * static_cast<float>(static_cast<int8_t>(scales >> (8 * group)));
    } else if constexpr (F.scales == Scales::kSuperMin) {
      return half(block & 0xffffu) * static_cast<float>(scales & 0xffu);
    } else {
      return half(block & 0xffffu) * static_cast<float>((scales >> (8 * group)) & 0xfu);
    }
  }

  static constexpr bool kHasMin = F.scales == Scales::kHalfMin || F.scales == Scales::kSuperMin ||
                                  F.scales == Scales::kSuperNibbles;
  // What is added to every number of the group.
  __device__ float min(int group) const {
    if constexpr (F.scales == Scales::kHalfMin)
      return half(scales >> 16);
    else if constexpr (F.scales == Scales::kSuperMin)
      return -(half(block >> 16) * static_cast<float>(scales >> 8));
    else
      return -(half(block >> 16) * static_cast<float>((scales >> (8 * group + 4)) & 0xfu));
  }

  // The numbers of the columns 4i .. 4i+3, as quant/ decodes them, bit for bit.
  __device__ float4 numbers(int i) const {
    const int group = kGroups == 1 ? 0 : i / 4;
    const uint32_t bytes = four(i);
    const float s = scale(group);
    float out[4];
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const uint32_t byte = (bytes >> (8 * b)) & 0xffu;
      const bool is_signed = F.bits == 8 || F.levels != Levels::kPlain;
      const auto level = static_cast<float>(
          (is_signed ? static_cast<int>(static_cast<int8_t>(byte)) : static_cast<int>(byte)) -
          F.offset);
      if constexpr (kHasMin)
        out[b] = quant::mul_add(s, level, min(group));
      else
        out[b] = __fmul_rn(s, level);
    }
    return make_float4(out[0], out[1], out[2], out[3]);
  }

  // Adds the product with a unit of activations to `sum`.
  __device__ float dot(const int32_t (&high)[8], const int32_t (&low)[8], float x_scale,
                       int2 x_sums, float sum) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      int32_t highs = 0, lows = 0;
#pragma unroll
      for (int i = group * (8 / kGroups); i < (group + 1) * (8 / kGroups); ++i) {
        const uint32_t bytes = four(i);
        highs = __dp4a(static_cast<int32_t>(bytes), high[i], highs);
        lows = __dp4a(static_cast<int32_t>(bytes), low[i], lows);
      }
      const int32_t x_sum = kGroups == 1 ? x_sums.x + x_sums.y : group == 0 ? x_sums.x : x_sums.y;
      const int32_t product = 256 * highs + lows - F.offset * x_sum;
      float value = scale(group) * static_cast<float>(product);
      if constexpr (kHasMin) value = fmaf(min(group), static_cast<float>(x_sum), value);
      sum = fmaf(x_scale, value, sum);
    }
    return sum;
  }
};

// Calls visitor.template operator()<format>() for a format of codes; false: it is none. (Kernels
// take the format rather than its CodeFormat, which nvcc cannot name where it launches them.)
#pragma nv_exec_check_disable
template <class Visitor>
__host__ __device__ __forceinline__ bool visit_codes(quant::Format format, Visitor&& visitor) {
  using quant::Format;
  switch (format) {
    case Format::kQ4_0:
      visitor.template operator()<Format::kQ4_0>();
      return true;
    case Format::kQ4_1:
      visitor.template operator()<Format::kQ4_1>();
      return true;
    case Format::kQ5_0:
      visitor.template operator()<Format::kQ5_0>();
      return true;
    case Format::kQ5_1:
      visitor.template operator()<Format::kQ5_1>();
      return true;
    case Format::kQ8_0:
      visitor.template operator()<Format::kQ8_0>();
      return true;
    case Format::kQ2_K:
      visitor.template operator()<Format::kQ2_K>();
      return true;
    case Format::kQ3_K:
      visitor.template operator()<Format::kQ3_K>();
      return true;
    case Format::kQ4_K:
      visitor.template operator()<Format::kQ4_K>();
      return true;
    case Format::kQ5_K:
      visitor.template operator()<Format::kQ5_K>();
      return true;
    case Format::kQ6_K:
      visitor.template operator()<Format::kQ6_K>();
      return true;
    case Format::kIQ4_NL:
      visitor.template operator()<Format::kIQ4_NL>();
      return true;
    case Format::kIQ4_XS:
      visitor.template operator()<Format::kIQ4_XS>();
      return true;
    case Format::kMXFP4:
      visitor.template operator()<Format::kMXFP4>();
      return true;
    default:
      return false;
  }
}

// Numbers of floating point, as they lie in a row.
template <class T>
struct Stored;  // of 4 or 2 bytes
template <>
struct Stored<quant::BlockF32> {
  static __device__ float number(const uint8_t* row, int64_t i) {
    return __ldg(reinterpret_cast<const float*>(row) + i);
  }
};
template <>
struct Stored<quant::BlockF16> {
  static __device__ float number(const uint8_t* row, int64_t i) {
    return half_number(__ldg(reinterpret_cast<const uint16_t*>(row) + i));
  }
};
template <>
struct Stored<quant::BlockBF16> {
  static __device__ float number(const uint8_t* row, int64_t i) {
    return bfloat_to_float(__ldg(reinterpret_cast<const uint16_t*>(row) + i));
  }
};

// 16 bytes of a row of floating point.
template <class T>
struct Vector {
  static constexpr int kNumbers = 16 / sizeof(T);
  uint4 words;

  __device__ void load(const uint8_t* row, int64_t index) {
    words = __ldcs(reinterpret_cast<const uint4*>(row) + index);
  }
  __device__ float dot(const float* x, float sum) const {
    const uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 4) {
        sum = fmaf(__uint_as_float(w[i]), x[i], sum);
      } else if constexpr (T::kFormat == quant::Format::kF16) {
        sum = fmaf(half_number(static_cast<uint16_t>(w[i])), x[2 * i], sum);
        sum = fmaf(half_number(static_cast<uint16_t>(w[i] >> 16)), x[2 * i + 1], sum);
      } else {
        sum = fmaf(__uint_as_float(w[i] << 16), x[2 * i], sum);
        sum = fmaf(__uint_as_float(w[i] & 0xffff0000u), x[2 * i + 1], sum);
      }
    }
    return sum;
  }
};

#pragma nv_exec_check_disable
template <class Visitor>
__host__ __device__ __forceinline__ void visit_stored(quant::Format format, Visitor&& visitor) {
  if (format == quant::Format::kF32)
    visitor.template operator()<quant::BlockF32>();
  else if (format == quant::Format::kF16)
    visitor.template operator()<quant::BlockF16>();
  else
    visitor.template operator()<quant::BlockBF16>();
}

}  // namespace
}  // namespace lockstep::exec::cuda
