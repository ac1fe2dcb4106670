#include "hub/stored_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/small_blocks.h"

namespace lockstep::hub {

using trace::StoredTensor;

const NumberType* number_type(const StoredTensor& tensor) {
  const auto* found = std::ranges::find(kNumberTypes, tensor.type->name, &NumberType::stored);
  return found != std::end(kNumberTypes) ? found : nullptr;
}

bool is_eight_bits(const StoredTensor& tensor) {
  return tensor.type->name == kEightBits;
}

std::string scales_name(std::string_view name) {
  if (!name.ends_with(kBlocks)) return std::string(name) + std::string(kScales);
  return std::string(name.substr(0, name.size() - kBlocks.size())) + std::string(kBlockScales);
}

namespace {

float float_of_eight_bits(uint8_t bits) {
  const int exponent = bits >> 3U & 15U;
  const auto fraction = static_cast<float>(bits & 7U);
  if ((bits & 0x7fU) == 0x7fU) return std::numeric_limits<float>::quiet_NaN();
  const float size =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (bits & 0x80U) != 0 ? -size : size;
}

}  // namespace

std::vector<float> scaled_floats(const StoredTensor& from, const StoredTensor& scales,
                                 int64_t block_rows, int64_t block_columns) {
  std::array<float, 256> values;
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = float_of_eight_bits(static_cast<uint8_t>(i));
  const DType dtype = number_type(scales)->dtype;
  const int64_t rows = from.shape[0], columns = from.shape[1], across = scales.shape[1];
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t block = r / block_rows * across + c / block_columns;
      const auto scale =
          static_cast<float>(load_number(dtype, scales.data.data() + block * size_bytes(dtype)));
      const auto at = static_cast<size_t>(r * columns + c);
      out[at] = values[static_cast<uint8_t>(from.data[at])] * scale;
    }
  return out;
}

void make_floats(PartNumbers& numbers, const StoredTensor& tensor, float more) {
  if (numbers.dtype == DType::kF32 && more == 0) return;
  int64_t count = 1;
  for (const int64_t extent : tensor.shape) count *= extent;  // the reader has checked the product
  std::vector<float> floats(static_cast<size_t>(count));
  const int64_t width = size_bytes(numbers.dtype);
  for (int64_t i = 0; i < count; ++i)
    floats[static_cast<size_t>(i)] =
        static_cast<float>(load_number(numbers.dtype, numbers.data + i * width)) + more;
  numbers.made = std::move(floats);
  numbers.data = reinterpret_cast<const std::byte*>(numbers.made.data());
  numbers.dtype = DType::kF32;
}

// The hub has numbers 2i and 2i + 1 in byte i, GGUF files i and i + 16; the lower bits come first.
void write_packed(std::span<const std::byte> codes, std::span<const std::byte> scales,
                  std::byte* out) {
  constexpr auto kBytes = static_cast<size_t>(kPackedNumbers / 2);
  static_assert(sizeof(quant::BlockMXFP4) == kBytes + 1);
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto from = codes.subspan(i * kBytes, kBytes);
    const auto code = [&](size_t number) {
      const auto both = static_cast<uint8_t>(from[number / 2]);
      return static_cast<uint8_t>(number % 2 == 0 ? both & 15U : both >> 4U);
    };
    quant::BlockMXFP4 block;
    block.exponent = static_cast<uint8_t>(scales[i]);
    for (size_t byte = 0; byte < kBytes; ++byte)
      block.codes[byte] = static_cast<uint8_t>(code(byte) | code(byte + kBytes) << 4U);
    std::memcpy(out + i * sizeof block, &block, sizeof block);
  }
}

}  // namespace lockstep::hub
