#include "exec/cuda/weights/weights.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/mapped_file.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "exec/cuda/weights/planes.h"
#include "exec/row_codes.h"
#include "quant/decode.h"

namespace lockstep::exec::cuda {
namespace {

constexpr int64_t kChunkBytes = 32 << 20;

int64_t number_bytes(quant::Format format) {
  return format == quant::Format::kF32 ? 4 : 2;
}

bool is_float(const op::Weight& weight) {
  return weight.format->block_values == 1;
}

void put_half(uint8_t* out, uint16_t half) {
  std::memcpy(out, &half, sizeof half);
}

// The planes of one row (planes.h).
struct RowPlanes {
  uint8_t *codes, *extra, *scales, *blocks;
};

void pack_unit(const CodeFormat& f, const uint8_t* codes, uint8_t* main, uint8_t* extra) {
  const auto put_twos = [&](int shift, uint8_t* out) {
    for (int c = 0; c < kUnit; ++c)
      out[c / 16 * 4 + c % 4] = static_cast<uint8_t>(out[c / 16 * 4 + c % 4] |
                                                     ((codes[c] >> shift) & 3) << (c % 16 / 4 * 2));
  };
  const auto put_ones = [&](int shift, uint8_t* out) {
    for (int c = 0; c < kUnit; ++c)
      out[c % 4] = static_cast<uint8_t>(out[c % 4] | ((codes[c] >> shift) & 1) << (c / 4));
  };
  if (f.bits == 8) {
    std::memcpy(main, codes, kUnit);
    return;
  }
  if (f.bits >= 4) {
    for (int c = 0; c < kUnit; ++c) {
      const int word = c / 8;
      const int byte = f.levels == Levels::kPlain ? c % 4 : c % 8 / 2;
      const int high = f.levels == Levels::kPlain ? c % 8 / 4 : c % 2;
      main[word * 4 + byte] =
          static_cast<uint8_t>(main[word * 4 + byte] | (codes[c] & 15) << (4 * high));
    }
    if (f.bits == 6) put_twos(4, extra);
    if (f.bits == 5) put_ones(4, extra);
    return;
  }
  put_twos(0, main);
  if (f.bits == 3) put_ones(2, extra);
}

void pack_row(const op::Weight& weight, int64_t row, const RowPlanes& out) {
  const CodeFormat f = code_format(weight.format->format());
  const UnitBytes bytes = unit_bytes(f);
  const int groups = kUnit / f.group;
  RowCodes codes;
  for (int64_t first = 0; first < weight.columns; first += kRowBlock) {
    const int64_t columns = std::min(weight.columns - first, kRowBlock);
    read_codes(weight, row, first, columns, codes);
    for (int64_t u = 0; u < columns / kUnit; ++u) {
      const int64_t unit = first / kUnit + u;
      pack_unit(f, codes.codes + u * kUnit, out.codes + unit * bytes.codes,
                out.extra + unit * bytes.extra);
      uint8_t* scales = out.scales + unit * bytes.scales;
      const auto g = static_cast<size_t>(u * groups);
      switch (f.scales) {
        case Scales::kHalf:
          put_half(scales, codes.halves[u]);
          break;
        case Scales::kHalfMin:
          put_half(scales, codes.halves[u]);
          put_half(scales + 2, codes.half_mins[u]);
          break;
        case Scales::kExponent:
        case Scales::kSuper:
        case Scales::kSuperNibbles:
          std::memcpy(scales, codes.scales + g, static_cast<size_t>(groups));
          break;
        case Scales::kSuperMin:
          scales[0] = codes.scales[g];
          scales[1] = codes.mins[g];
          break;
      }
    }
    if (bytes.block == 0) continue;
    uint8_t* block = out.blocks + first / kRowBlock * bytes.block;
    put_half(block, codes.d);
    if (bytes.block == 4) put_half(block + 2, codes.d_min);
  }
}

}  // namespace

// Two pinned buffers: one is filled while the other goes up.
class Staging {
 public:
  static Result<Staging> create() {
    Staging out;
    for (int i = 0; i < 2; ++i) {
      LS_TRY(out.buffers_[i], PinnedMemory::allocate(kChunkBytes));
      LS_TRY_VOID(check(cudaEventCreateWithFlags(&out.sent_[i], cudaEventDisableTiming),
                        "cudaEventCreate"));
    }
    return out;
  }
  Staging() = default;
  Staging(Staging&& other) noexcept
      : buffers_{std::move(other.buffers_[0]), std::move(other.buffers_[1])},
        sent_{std::exchange(other.sent_[0], nullptr), std::exchange(other.sent_[1], nullptr)} {}
  Staging& operator=(Staging&&) = delete;
  ~Staging() {
    cudaStreamSynchronize(nullptr);
    for (cudaEvent_t event : sent_)
      if (event != nullptr) cudaEventDestroy(event);
  }

  // A buffer of kChunkBytes that nothing reads any more, all zeros in its first `bytes`.
  Result<uint8_t*> next(int64_t bytes) {
    turn_ ^= 1;
    LS_TRY_VOID(check(cudaEventSynchronize(sent_[turn_]), "cudaEventSynchronize"));
    std::memset(buffers_[turn_].data(), 0, static_cast<size_t>(bytes));
    return buffers_[turn_].as<uint8_t>();
  }
  Result<void> send(std::byte* to, int64_t offset, int64_t bytes) {
    return check(cudaMemcpyAsync(to, buffers_[turn_].data() + offset, static_cast<size_t>(bytes),
                                 cudaMemcpyHostToDevice, nullptr),
                 "cudaMemcpyAsync of weights");
  }
  Result<void> sent() { return check(cudaEventRecord(sent_[turn_], nullptr), "cudaEventRecord"); }

 private:
  PinnedMemory buffers_[2];
  cudaEvent_t sent_[2] = {};
  int turn_ = 0;
};

Weights Weights::plan(const op::Program& program) {
  Weights out;
  for (const op::Op& op : program.ops) {
    if (const auto* embed = std::get_if<op::Embed>(&op.what)) out.add_matrix(embed->table);
    if (const auto* linear = std::get_if<op::Linear>(&op.what)) {
      out.add_matrix(linear->weight);
      if (linear->bias) out.add_vector(*linear->bias);
    }
    if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what)) {
      out.add_matrix(experts->weight);
      if (experts->bias) out.add_vector(*experts->bias);
    }
    if (const auto* choose = std::get_if<op::Choose>(&op.what); choose != nullptr && choose->bias)
      out.add_vector(*choose->bias);
    if (const auto* attention = std::get_if<op::Attention>(&op.what);
        attention != nullptr && attention->sinks)
      out.add_vector(*attention->sinks);
    if (const auto* norm = std::get_if<op::Norm>(&op.what)) {
      out.add_vector(norm->weight);
      if (norm->bias) out.add_vector(*norm->bias);
    }
  }
  return out;
}

void Weights::add_matrix(const op::Weight& weight) {
  const auto [found, fresh] = matrices_.try_emplace(key(weight));
  if (!fresh) return;
  Matrix& matrix = found->second;
  matrix.source = weight;
  matrix.view.format = weight.format->format();
  matrix.view.rows = weight.rows;
  matrix.view.columns = weight.columns;
  if (is_float(weight)) {
    const int64_t bytes = number_bytes(matrix.view.format);
    const int64_t numbers = 16 / bytes;
    matrix.view.row_stride = (weight.columns + numbers - 1) / numbers * numbers;
    matrix.view.row_bytes[0] = matrix.view.row_stride * bytes;
  } else {
    const UnitBytes bytes = unit_bytes(code_format(matrix.view.format));
    const int64_t units = weight.columns / kUnit;
    matrix.view.row_bytes[0] = units * bytes.codes;
    matrix.view.row_bytes[1] = units * bytes.extra;
    matrix.view.row_bytes[2] = units * bytes.scales;
    matrix.view.row_bytes[3] = units / kUnitsOfBlock * bytes.block;
  }
  for (int i = 0; i < 4; ++i)
    if (matrix.view.row_bytes[i] > 0)
      matrix.planes[i] = layout_.place(weight.rows * matrix.view.row_bytes[i]);
}

void Weights::add_vector(const op::Weight& weight) {
  const auto [found, fresh] = vectors_.try_emplace(key(weight));
  if (fresh) found->second = {weight, layout_.place(weight.rows * weight.columns * 4)};
}

Result<void> Weights::load() {
  LS_TRY(memory_, DeviceMemory::allocate(layout_.bytes()));
  LS_TRY(Staging staging, Staging::create());
  Progress progress("Sending weights to the GPU", layout_.bytes() / 1'000'000, "MB");
  int64_t done = 0;
  for (const auto& [place, entry] : vectors_) {
    const op::Weight& weight = entry.first;
    std::vector<float> numbers(static_cast<size_t>(weight.rows * weight.columns));
    for (int64_t row = 0; row < weight.rows; ++row)
      quant::decode(weight.format->format(), weight.row(row), weight.columns,
                    numbers.data() + row * weight.columns);
    LS_TRY_VOID(check(cudaMemcpy(memory_.data() + entry.second, numbers.data(),
                                 numbers.size() * sizeof(float), cudaMemcpyHostToDevice),
                      "cudaMemcpy of " + entry.first.name));
  }
  for (auto& [place, matrix] : matrices_) {
    LS_TRY_VOID(send_matrix(matrix, staging));
    const auto plane = [&](int i) -> const uint8_t* {
      return matrix.view.row_bytes[i] > 0 ? memory_.as<uint8_t>(matrix.planes[i]) : nullptr;
    };
    matrix.view.codes = plane(0);
    matrix.view.extra = plane(1);
    matrix.view.scales = plane(2);
    matrix.view.blocks = plane(3);
    if (matrix.source.mapped) MappedFile::release_pages(matrix.source.data);
    const int64_t before = done / 1'000'000;
    for (const int64_t bytes : matrix.view.row_bytes) done += bytes * matrix.source.rows;
    progress.advance(done / 1'000'000 - before);
  }
  return check(cudaStreamSynchronize(nullptr), "sending the weights");
}

Result<void> Weights::send_matrix(const Matrix& matrix, Staging& staging) {
  const op::Weight& weight = matrix.source;
  int64_t row_bytes = 0;
  for (const int64_t bytes : matrix.view.row_bytes) row_bytes += bytes;
  if (row_bytes > kChunkBytes)
    return error("tensor '{}': a row of {} bytes; at most {} are supported on the GPU", weight.name,
                 row_bytes, kChunkBytes);
  const int64_t most = kChunkBytes / row_bytes;
  for (int64_t first = 0; first < weight.rows; first += most) {
    const int64_t rows = std::min(most, weight.rows - first);
    LS_TRY(uint8_t * buffer, staging.next(rows * row_bytes));
    uint8_t* planes[4];
    int64_t offset = 0;
    for (int i = 0; i < 4; ++i) {
      planes[i] = buffer + offset;
      offset += rows * matrix.view.row_bytes[i];
    }
    const auto pack = [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        if (is_float(weight))
          std::memcpy(planes[0] + r * matrix.view.row_bytes[0], weight.row(first + r),
                      static_cast<size_t>(weight.row_bytes()));
        else
          pack_row(
              weight, first + r,
              {planes[0] + r * matrix.view.row_bytes[0], planes[1] + r * matrix.view.row_bytes[1],
               planes[2] + r * matrix.view.row_bytes[2], planes[3] + r * matrix.view.row_bytes[3]});
      }
    };
    parallel_for(rows, std::max<int64_t>(1, 100'000 / row_bytes), pack);
    for (int i = 0; i < 4; ++i)
      if (matrix.view.row_bytes[i] > 0)
        LS_TRY_VOID(
            staging.send(memory_.data() + matrix.planes[i] + first * matrix.view.row_bytes[i],
                         planes[i] - buffer, rows * matrix.view.row_bytes[i]));
    LS_TRY_VOID(staging.sent());
  }
  return {};
}

WeightView Weights::matrix(const op::Weight& weight) const {
  return matrices_.at(key(weight)).view;
}

const float* Weights::vector(const op::Weight& weight) const {
  return memory_.as<float>(vectors_.at(key(weight)).second);
}

}  // namespace lockstep::exec::cuda
