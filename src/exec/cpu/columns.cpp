#include "exec/cpu/columns.h"

#include <algorithm>

namespace lockstep::exec::cpu {
namespace {

constexpr int64_t kScaleBlock = 256;

template <class T>
void grow(HugeVector<T>& vector, int64_t size) {
  if (std::ssize(vector) < size) vector.resize(static_cast<size_t>(size));
}

int64_t blocks_of(int64_t length) {
  return (length + kScaleBlock - 1) / kScaleBlock;
}

}  // namespace

void ColumnBuffer::reserve(int64_t length, int64_t count) {
  if (floats_) grow(values_, length * count);
  if (!codes_) return;
  grow(pairs_, (length + 1) / 2 * count + kColumnsBehind);
  grow(scales_, blocks_of(length) * count + kColumnsBehind);
  grow(sums16_, length / 16 * count + kColumnsBehind);
  grow(sums32_, length / 32 * count + kColumnsBehind);
}

void ColumnBuffer::fill(const Kernels& kernels, const float* x, int64_t length, int64_t count,
                        int64_t begin, int64_t end) {
  for (int64_t tile = begin; tile < end; tile += kTile)
    fill_tile(kernels, x + tile * length, length, std::min(kTile, count - tile), tile);
}

void ColumnBuffer::fill_tile(const Kernels& kernels, const float* rows, int64_t length,
                             int64_t width, int64_t first) {
  const Columns out = view(length, width, first);
  if (floats_) kernels.transpose_tile(rows, length, width, length, out.values);
  // Quantized rows are whole blocks of 32.
  if (codes_ && length % 32 == 0)
    kernels.quantize_tile(rows, length, width, length, out.pairs, out.scales, out.sums16,
                          out.sums32);
}

Columns ColumnBuffer::view(int64_t length, int64_t count, int64_t first) {
  return {.count = count,
          .length = length,
          .values = values_.data() + first * (floats_ ? length : 0),
          .pairs = pairs_.data() + first * (codes_ ? length / 2 : 0),
          .scales = scales_.data() + first * (codes_ ? blocks_of(length) : 0),
          .sums16 = sums16_.data() + first * (codes_ ? length / 16 : 0),
          .sums32 = sums32_.data() + first * (codes_ ? length / 32 : 0)};
}

}  // namespace lockstep::exec::cpu
