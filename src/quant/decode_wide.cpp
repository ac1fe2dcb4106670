#include "quant/decode_wide.h"

#ifdef __x86_64__
#include <cstddef>
#include <cstring>

#include <immintrin.h>

#include "quant/blocks.h"

// GCC 12 warns about the undefined registers inside its own intrinsics.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define LS_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl")]]

namespace lockstep::quant {
namespace {

// A block may lie anywhere, so its parts are found by their distance from its start.
#define LS_PART(Block, member) (block + offsetof(Block, member))

float half_at(const std::byte* part) {
  uint16_t half = 0;
  std::memcpy(&half, part, sizeof half);
  return half_to_float(half);
}
const uint8_t* bytes_at(const std::byte* part) {
  return reinterpret_cast<const uint8_t*>(part);
}

LS_AVX512 inline __m128i load_codes(const void* codes) {
  return _mm_loadu_si128(static_cast<const __m128i*>(codes));
}
LS_AVX512 inline __m128i low_nibbles(__m128i codes) {
  return _mm_and_si128(codes, _mm_set1_epi8(0xf));
}
LS_AVX512 inline __m128i high_nibbles(__m128i codes) {
  return low_nibbles(_mm_srli_epi16(codes, 4));
}
LS_AVX512 inline __m512 as_floats(__m128i signed_codes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(signed_codes));
}
// scale * (code - offset)
LS_AVX512 inline void put(__m128i codes, char offset, __m512 scale, float* out) {
  const __m128i moved = _mm_sub_epi8(codes, _mm_set1_epi8(offset));
  _mm512_storeu_ps(out, _mm512_mul_ps(scale, as_floats(moved)));
}
// scale * code - min
LS_AVX512 inline void put(__m128i codes, __m512 scale, __m512 min, float* out) {
  _mm512_storeu_ps(out, _mm512_sub_ps(_mm512_mul_ps(scale, as_floats(codes)), min));
}
// The bit 16 where the mask has a one.
LS_AVX512 inline __m128i with_fifth_bits(__m128i codes, uint32_t mask) {
  return _mm_or_si128(codes, _mm_maskz_set1_epi8(static_cast<__mmask16>(mask), 16));
}
LS_AVX512 inline __m512 scale_at(const std::byte* part) {
  return _mm512_set1_ps(half_at(part));
}

LS_AVX512 void decode_q4_0(const std::byte* block, float* out) {
  const __m128i codes = load_codes(LS_PART(BlockQ4_0, codes));
  put(low_nibbles(codes), 8, scale_at(LS_PART(BlockQ4_0, d)), out);
  put(high_nibbles(codes), 8, scale_at(LS_PART(BlockQ4_0, d)), out + 16);
}

LS_AVX512 void decode_q5_0(const std::byte* block, float* out) {
  const __m128i codes = load_codes(LS_PART(BlockQ5_0, codes));
  uint32_t high = 0;
  std::memcpy(&high, LS_PART(BlockQ5_0, high), sizeof high);
  put(with_fifth_bits(low_nibbles(codes), high), 16, scale_at(LS_PART(BlockQ5_0, d)), out);
  put(with_fifth_bits(high_nibbles(codes), high >> 16), 16, scale_at(LS_PART(BlockQ5_0, d)),
      out + 16);
}

LS_AVX512 void decode_q8_0(const std::byte* block, float* out) {
  put(load_codes(LS_PART(BlockQ8_0, codes)), 0, scale_at(LS_PART(BlockQ8_0, d)), out);
  put(load_codes(LS_PART(BlockQ8_0, codes) + 16), 0, scale_at(LS_PART(BlockQ8_0, d)), out + 16);
}

LS_AVX512 void decode_q4_k(const std::byte* block, float* out) {
  const float d = half_at(LS_PART(BlockQ4_K, d));
  const float d_min = half_at(LS_PART(BlockQ4_K, d_min));
  for (int group = 0; group < 8; ++group) {
    const __m512 scale = _mm512_set1_ps(
        d * static_cast<float>(six_bit_scale(bytes_at(LS_PART(BlockQ4_K, scales)), group)));
    const __m512 min = _mm512_set1_ps(
        d_min * static_cast<float>(six_bit_min(bytes_at(LS_PART(BlockQ4_K, scales)), group)));
    for (int part = 0; part < 32; part += 16) {
      const __m128i codes = load_codes(LS_PART(BlockQ4_K, codes) + group / 2 * 32 + part);
      put(group % 2 == 0 ? low_nibbles(codes) : high_nibbles(codes), scale, min,
          out + group * 32 + part);
    }
  }
}

LS_AVX512 void decode_q5_k(const std::byte* block, float* out) {
  const float d = half_at(LS_PART(BlockQ5_K, d));
  const float d_min = half_at(LS_PART(BlockQ5_K, d_min));
  for (int group = 0; group < 8; ++group) {
    const __m512 scale = _mm512_set1_ps(
        d * static_cast<float>(six_bit_scale(bytes_at(LS_PART(BlockQ5_K, scales)), group)));
    const __m512 min = _mm512_set1_ps(
        d_min * static_cast<float>(six_bit_min(bytes_at(LS_PART(BlockQ5_K, scales)), group)));
    const __m128i bit = _mm_set1_epi8(static_cast<char>(1 << group));
    for (int part = 0; part < 32; part += 16) {
      const __m128i codes = load_codes(LS_PART(BlockQ5_K, codes) + group / 2 * 32 + part);
      const __mmask16 high = _mm_test_epi8_mask(load_codes(LS_PART(BlockQ5_K, high) + part), bit);
      put(with_fifth_bits(group % 2 == 0 ? low_nibbles(codes) : high_nibbles(codes), high), scale,
          min, out + group * 32 + part);
    }
  }
}

LS_AVX512 void decode_q6_k(const std::byte* block, float* out) {
  const float d = half_at(LS_PART(BlockQ6_K, d));
  for (int group = 0; group < 16; ++group) {
    const int half = group / 8;
    const int quarter = group % 8 / 2;
    const __m128i low =
        load_codes(LS_PART(BlockQ6_K, low) + half * 64 + quarter % 2 * 32 + group % 2 * 16);
    const __m128i high = load_codes(LS_PART(BlockQ6_K, high) + half * 32 + group % 2 * 16);
    const __m128i upper =
        _mm_and_si128(_mm_srl_epi16(high, _mm_cvtsi32_si128(quarter * 2)), _mm_set1_epi8(3));
    const __m128i codes =
        _mm_or_si128(quarter < 2 ? low_nibbles(low) : high_nibbles(low), _mm_slli_epi16(upper, 4));
    put(codes, 32,
        _mm512_set1_ps(d * static_cast<float>(
                               static_cast<int8_t>(bytes_at(LS_PART(BlockQ6_K, scales))[group]))),
        out + group * 16);
  }
}

template <class Block, void (*kDecode)(const std::byte*, float*)>
LS_AVX512 void decode_blocks(const std::byte* source, int64_t blocks, float* out) {
  for (int64_t i = 0; i < blocks; ++i, source += sizeof(Block), out += Block::kValues)
    kDecode(source, out);
}

}  // namespace

DecodeBlocks wide_decode(Format format) {
  static const bool supported = __builtin_cpu_supports("avx512f") &&
                                __builtin_cpu_supports("avx512bw") &&
                                __builtin_cpu_supports("avx512vl");
  if (!supported) return nullptr;
  switch (format) {
    case Format::kQ4_0:
      return decode_blocks<BlockQ4_0, decode_q4_0>;
    case Format::kQ5_0:
      return decode_blocks<BlockQ5_0, decode_q5_0>;
    case Format::kQ8_0:
      return decode_blocks<BlockQ8_0, decode_q8_0>;
    case Format::kQ4_K:
      return decode_blocks<BlockQ4_K, decode_q4_k>;
    case Format::kQ5_K:
      return decode_blocks<BlockQ5_K, decode_q5_k>;
    case Format::kQ6_K:
      return decode_blocks<BlockQ6_K, decode_q6_k>;
    default:
      return nullptr;
  }
}

}  // namespace lockstep::quant
#else
namespace lockstep::quant {
DecodeBlocks wide_decode(Format) {
  return nullptr;
}
}  // namespace lockstep::quant
#endif
