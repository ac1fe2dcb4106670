#include "doctor/decodings.h"

#include <algorithm>
#include <map>

#include "base/parallel.h"
#include "doctor/decoding_parts.h"
#include "doctor/decoding_rows.h"
#include "quant/decode.h"

namespace lockstep::doctor {
namespace {

using quant::Format;

// Every other type, those whose blocks are as large first.
void add_types(const quant::FormatInfo& format, Rows& rows) {
  const auto take = [&](bool as_large) {
    for (const quant::FormatInfo& other : quant::all_formats()) {
      if (!other.decodable || other.id == format.id) continue;
      if ((other.block_values * format.block_bytes == format.block_values * other.block_bytes) !=
          as_large)
        continue;
      rows.push_back({format.format(), "type", "reads the blocks as " + std::string(other.name),
                      nullptr, other.format()});
    }
  };
  take(true);
  take(false);
}

std::map<Format, Rows> make_table() {
  std::map<Format, Rows> out;
  for (Rows rows : {small_rows(), super_rows()})
    for (Decoding& row : rows) out[row.format].push_back(std::move(row));
  for (const quant::FormatInfo& format : quant::all_formats())
    if (format.decodable && format.format() != Format::kF32)
      add_types(format, out[format.format()]);
  return out;
}

template <class Block>
void decode_blocks(const op::Weight& weight, int64_t row, const Decoding& decoding,
                   const Decoding* also, float* out) {
  Place place{weight, row, 0};
  for (; place.block < weight.columns / Block::kValues; ++place.block) {
    Parts parts = parts_of(place.read<Block>());
    // What takes the whole block for another comes first.
    const bool before = also != nullptr && also->how == "block_scale";
    if (before) also->alter(place, parts);
    decoding.alter(place, parts);
    if (also != nullptr && !before) also->alter(place, parts);
    assemble(parts, out + place.block * Block::kValues);
  }
}

}  // namespace

std::span<const Decoding> decodings_of(Format format) {
  static const std::map<Format, Rows> table = make_table();
  const auto found = table.find(format);
  return found != table.end() ? std::span<const Decoding>(found->second)
                              : std::span<const Decoding>();
}

bool applies(const Decoding& decoding, const op::Weight& weight) {
  if (decoding.alter != nullptr) return true;
  const quant::FormatInfo& other = quant::info(decoding.as);
  return weight.columns % other.block_values == 0 &&
         weight.rows * quant::size_bytes(other, weight.columns) <= std::ssize(weight.data);
}

void decode_row(const op::Weight& weight, int64_t row, const Decoding& decoding,
                const Decoding* also, float* out) {
  if (decoding.alter == nullptr) {
    const int64_t bytes = quant::size_bytes(quant::info(decoding.as), weight.columns);
    quant::decode(decoding.as, weight.data.data() + row * bytes, weight.columns, out);
    return;
  }
  quant::visit_format(weight.format->format(), [&]<class Block>(Block) {
    if constexpr (Block::kValues > 1) decode_blocks<Block>(weight, row, decoding, also, out);
  });
}

std::vector<float> decode_all(const op::Weight& weight, const Decoding& decoding, int threads) {
  std::vector<float> out(static_cast<size_t>(weight.rows * weight.columns));
  parallel_rows(weight.rows, weight.columns, threads, [&](int64_t row) {
    decode_row(weight, row, decoding, nullptr, out.data() + row * weight.columns);
  });
  return out;
}

}  // namespace lockstep::doctor
