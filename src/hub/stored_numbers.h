// How the hub stores numbers, and what they become. Within this folder.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "quant/format.h"
#include "trace/safetensors.h"

namespace lockstep::hub {

struct NumberType {
  std::string_view stored;
  DType dtype;
  quant::Format format;
};
inline constexpr NumberType kNumberTypes[] = {
    {"F32", DType::kF32, quant::Format::kF32},
    {"F16", DType::kF16, quant::Format::kF16},
    {"BF16", DType::kBF16, quant::Format::kBF16},
};
const NumberType* number_type(const trace::StoredTensor& tensor);  // nullptr where it is another

// Eight bits: a sign, four of the exponent, three of the fraction; no infinity. Each block of a
// matrix has a scale, in a tensor with this behind its name.
inline constexpr std::string_view kEightBits = "F8_E4M3";
inline constexpr std::string_view kScales = "_scale_inv";
bool is_eight_bits(const trace::StoredTensor& tensor);

// Four bits: a sign, two of the exponent, one of the fraction (MXFP4). A block of so many numbers
// has a scale, in a tensor of the same name with another end.
inline constexpr int64_t kPackedNumbers = 32;
inline constexpr std::string_view kBlocks = "_blocks";
inline constexpr std::string_view kBlockScales = "_scales";

// What the scales of this tensor are called.
std::string scales_name(std::string_view name);

// The numbers of one tensor, as they are stored or as floats.
struct PartNumbers {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<float> made = {};
};

// Each block of a matrix times its scale.
std::vector<float> scaled_floats(const trace::StoredTensor& from, const trace::StoredTensor& scales,
                                 int64_t block_rows, int64_t block_columns);

// As F32, as GGUF files have what is added and what norms multiply with.
void make_floats(PartNumbers& numbers, const trace::StoredTensor& tensor, float more);

// Blocks of sixteen bytes and their scales as GGUF files have them.
void write_packed(std::span<const std::byte> codes, std::span<const std::byte> scales,
                  std::byte* out);

}  // namespace lockstep::hub
