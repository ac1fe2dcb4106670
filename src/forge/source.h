// Makes the bytes of tensors: fast, in little memory, and the same whatever the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "forge/filling.h"
#include "gguf/writer.h"

namespace lockstep::forge {

// Encoded Gaussian numbers. Encoding is what takes the time, so rows of large tensors are put
// together from pieces of a pool, each from a random place.
class Pools {
 public:
  static constexpr int64_t kValues = int64_t{1} << 20;

  explicit Pools(uint64_t seed) : seed_(seed) {}

  // Valid as long as this object. Made on the first call.
  const std::vector<std::byte>& pool(quant::Format format, double deviation);

 private:
  uint64_t seed_;
  std::map<std::pair<quant::Format, double>, std::vector<std::byte>> pools_;
};

// One tensor, cut into chunks of whole rows that can be made in any order.
class TensorSource {
 public:
  TensorSource(const gguf::TensorPlan& tensor, Filling filling, uint64_t seed, Pools& pools);

  int64_t chunks() const { return (rows_ + chunk_rows_ - 1) / chunk_rows_; }
  int64_t first_byte(int64_t chunk) const;  // chunk may be chunks(): the tensor's size

  // Writes chunks [begin, end) to `out`. Safe on several threads at once.
  void make(int64_t begin, int64_t end, std::byte* out) const;

 private:
  void make_fresh(uint64_t chunk_seed, int64_t values, std::byte* out) const;
  void make_from_pool(uint64_t chunk_seed, int64_t rows, std::byte* out) const;

  const quant::FormatInfo& format_;
  int64_t columns_;
  int64_t rows_;
  int64_t chunk_rows_;
  int64_t piece_values_;
  Filling filling_;
  uint64_t seed_;
  const std::vector<std::byte>* pool_ = nullptr;  // null: every number is made and encoded anew
};

}  // namespace lockstep::forge
