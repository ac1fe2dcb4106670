// The numbers of a tensor, decoded where they are asked for.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gguf/file.h"

namespace lockstep::audit {

// A multiple of every format's block.
inline constexpr int64_t kPiece = 256;

class Values {
 public:
  explicit Values(const gguf::Tensor& tensor)
      : format_(tensor.format), data_(tensor.data.data()), count_(tensor.values()) {}

  const quant::FormatInfo& format() const { return *format_; }
  int64_t count() const { return count_; }

  // Values [first, first + n), both whole blocks.
  void read(int64_t first, int64_t n, float* out) const;

  // One value. Neighbours come quickly: the block stays decoded.
  float at(int64_t index) const;

 private:
  const quant::FormatInfo* format_;
  const std::byte* data_;
  int64_t count_;
  mutable int64_t block_ = -1;
  mutable std::array<float, kPiece> decoded_{};
};

// Bits that the format spends on a value: of two files, the one with more is nearer to the truth.
double bits(const quant::FormatInfo& format);

// The dimensions without trailing ones, which say nothing.
std::vector<int64_t> trimmed(std::vector<int64_t> dims);

}  // namespace lockstep::audit
