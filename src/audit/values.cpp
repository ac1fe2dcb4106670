#include "audit/values.h"

#include "quant/decode.h"

namespace lockstep::audit {

void Values::read(int64_t first, int64_t n, float* out) const {
  quant::decode(format_->format(), data_ + quant::size_bytes(*format_, first), n, out);
}

float Values::at(int64_t index) const {
  const int64_t size = format_->block_values;
  if (const int64_t block = index / size; block != block_) {
    read(block * size, size, decoded_.data());
    block_ = block;
  }
  return decoded_[static_cast<size_t>(index % size)];
}

double bits(const quant::FormatInfo& format) {
  return 8 * static_cast<double>(format.block_bytes) / static_cast<double>(format.block_values);
}

std::vector<int64_t> trimmed(std::vector<int64_t> dims) {
  while (dims.size() > 1 && dims.back() == 1) dims.pop_back();
  return dims;
}

}  // namespace lockstep::audit
