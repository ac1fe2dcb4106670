#include "forge/source.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <xxhash.h>

#include "base/parallel.h"
#include "base/random.h"
#include "forge/formats.h"

namespace lockstep::forge {
namespace {

constexpr int64_t kChunkValues = 1 << 16;
constexpr int64_t kLargestPiece = 256;     // values
constexpr int64_t kAlwaysFresh = 1 << 18;  // values of a tensor that no pool is worth it for

uint64_t mix(uint64_t seed, uint64_t number) {
  return XXH3_64bits_withSeed(&number, sizeof number, seed);
}

uint64_t mix(uint64_t seed, std::string_view text) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

// All dimensions but the first: the matrices of experts lie one below the other.
int64_t rows_of(const gguf::TensorPlan& tensor) {
  int64_t rows = 1;
  for (const int64_t dim : std::span(tensor.dims).subspan(1)) rows *= dim;
  return rows;
}

// Short enough that a narrow row still has several.
int64_t piece_values(const quant::FormatInfo& format, int64_t columns) {
  const int64_t piece = std::min(columns / 8, kLargestPiece) / format.block_values;
  return std::max<int64_t>(piece, 1) * format.block_values;
}

// Whether two rows might turn out the same: fewer than 2^-12 chances in all that they do are fine.
bool enough_rows(const quant::FormatInfo& format, int64_t columns, int64_t rows, int64_t piece) {
  const double places = std::log2(static_cast<double>(Pools::kValues / format.block_values));
  const auto pieces = static_cast<double>(columns / piece);
  return places * pieces > 2 * std::log2(static_cast<double>(rows)) + 12;
}

}  // namespace

const std::vector<std::byte>& Pools::pool(quant::Format format, double deviation) {
  auto [found, is_new] = pools_.try_emplace({format, deviation});
  std::vector<std::byte>& bytes = found->second;
  if (!is_new) return bytes;
  const quant::FormatInfo& info = quant::info(format);
  bytes.resize(static_cast<size_t>(quant::size_bytes(info, kValues)));
  const uint64_t seed = mix(mix(seed_, info.id), std::bit_cast<uint64_t>(deviation));
  parallel_for(kValues / kChunkValues, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> values(kChunkValues);
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      Random random(mix(seed, static_cast<uint64_t>(chunk)));
      for (float& value : values) value = static_cast<float>(deviation * random.gaussian());
      forge::encode(format, values.data(), kChunkValues,
                    bytes.data() + quant::size_bytes(info, chunk * kChunkValues));
    }
  });
  return bytes;
}

TensorSource::TensorSource(const gguf::TensorPlan& tensor, Filling filling, uint64_t seed,
                           Pools& pools)
    : format_(*tensor.format),
      columns_(tensor.dims[0]),
      rows_(rows_of(tensor)),
      chunk_rows_(std::max<int64_t>(kChunkValues / columns_, 1)),
      piece_values_(piece_values(format_, columns_)),
      filling_(std::move(filling)),
      seed_(mix(seed, tensor.name)) {
  LS_CHECK(filling_.fixed.empty() || static_cast<int64_t>(filling_.fixed.size()) == columns_,
           "tensor {} has {} columns, but {} values", tensor.name, columns_, filling_.fixed.size());
  const bool pooled = rows_ > 1 && filling_.mean == 0 && rows_ > kAlwaysFresh / columns_ &&
                      enough_rows(format_, columns_, rows_, piece_values_);
  if (pooled) pool_ = &pools.pool(format_.format(), filling_.deviation);
}

int64_t TensorSource::first_byte(int64_t chunk) const {
  return std::min(chunk * chunk_rows_, rows_) * quant::size_bytes(format_, columns_);
}

void TensorSource::make(int64_t begin, int64_t end, std::byte* out) const {
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t rows = std::min(chunk_rows_, rows_ - chunk * chunk_rows_);
    std::byte* place = out + first_byte(chunk) - first_byte(begin);
    const uint64_t chunk_seed = mix(seed_, static_cast<uint64_t>(chunk));
    if (!filling_.fixed.empty())
      forge::encode(format_.format(), filling_.fixed.data(), columns_, place);
    else if (pool_ != nullptr)
      make_from_pool(chunk_seed, rows, place);
    else
      make_fresh(chunk_seed, rows * columns_, place);
  }
}

void TensorSource::make_fresh(uint64_t chunk_seed, int64_t values, std::byte* out) const {
  Random random(chunk_seed);
  std::vector<float> numbers(static_cast<size_t>(values));
  for (float& number : numbers)
    number = static_cast<float>(filling_.mean + filling_.deviation * random.gaussian());
  forge::encode(format_.format(), numbers.data(), values, out);
}

void TensorSource::make_from_pool(uint64_t chunk_seed, int64_t rows, std::byte* out) const {
  Random random(chunk_seed);
  const int64_t row_blocks = columns_ / format_.block_values;
  const int64_t piece_blocks = piece_values_ / format_.block_values;
  const int64_t places = Pools::kValues / format_.block_values - piece_blocks + 1;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t block = 0; block < row_blocks; block += piece_blocks) {
      const int64_t bytes = std::min(piece_blocks, row_blocks - block) * format_.block_bytes;
      std::memcpy(out, pool_->data() + random.below(places) * format_.block_bytes,
                  static_cast<size_t>(bytes));
      out += bytes;
    }
  }
}

}  // namespace lockstep::forge
