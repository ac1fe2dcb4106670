#include "exec/cpu/columns.h"

#include <algorithm>

namespace lockstep::exec::cpu {
namespace {

constexpr int64_t kScaleBlock = 256;

template <class T>
void grow(std::vector<T>& vector, int64_t size) {
  if (std::ssize(vector) < size) vector.resize(static_cast<size_t>(size));
}

int64_t blocks_of(int64_t length) {
  return (length + kScaleBlock - 1) / kScaleBlock;
}

}  // namespace

void ColumnBuffer::reserve(int64_t length, int64_t count) {
  if (floats_) grow(values_, length * count);
  if (!codes_) return;
  grow(pairs_, (length + 1) / 2 * count);
  grow(scales_, blocks_of(length) * count);
  grow(sums16_, length / 16 * count);
  grow(sums32_, length / 32 * count);
}

void ColumnBuffer::fill(const Kernels& kernels, const float* x, int64_t length, int64_t count,
                        int64_t begin, int64_t end) {
  const bool codes = codes_ && length % 32 == 0;  // quantized rows are whole blocks of 32
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t width = std::min(kTile, count - tile);
    const float* rows = x + tile * length;
    if (floats_)
      kernels.transpose_tile(rows, length, width, length, values_.data() + tile * length);
    if (codes)
      kernels.quantize_tile(rows, length, width, length, pairs_.data() + tile * (length / 2),
                            scales_.data() + tile * blocks_of(length),
                            sums16_.data() + tile * (length / 16),
                            sums32_.data() + tile * (length / 32));
  }
}

Columns ColumnBuffer::view(int64_t length, int64_t count) {
  return {.count = count,
          .length = length,
          .values = values_.data(),
          .pairs = pairs_.data(),
          .scales = scales_.data(),
          .sums16 = sums16_.data(),
          .sums32 = sums32_.data()};
}

}  // namespace lockstep::exec::cpu
