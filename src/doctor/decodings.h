// The wrong ways in which engines decode quantized weights: a table with a row for each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "op/op.h"

namespace lockstep::doctor {

struct Parts;  // of a block (decoding_parts.h)
struct Place;  // of a block in a weight

struct Decoding {
  quant::Format format;
  std::string_view how;  // nibble_order, scale_order, scale_min_swapped, high_bits, offset,
                         // block_scale or type
  std::string words;     // what the engine does, a clause: "reads ..."
  // What is read otherwise than it should be. Null: all of the tensor is read as type `as`.
  void (*alter)(const Place& place, Parts& parts) = nullptr;
  quant::Format as{};
};

// Those of one format, most likely first. None is the same as another for all blocks.
std::span<const Decoding> decodings_of(quant::Format format);

// Whether an engine can have read this weight so: its rows are whole blocks of the other type, and
// the tensor has as many bytes as that takes.
bool applies(const Decoding& decoding, const op::Weight& weight);

// One row of the weight, decoded so. It may hold infinities and NaNs. `also`: a second mistake on
// top of the first (no other type).
void decode_row(const op::Weight& weight, int64_t row, const Decoding& decoding,
                const Decoding* also, float* out);

// All of it: [rows, columns].
std::vector<float> decode_all(const op::Weight& weight, const Decoding& decoding, int threads);

}  // namespace lockstep::doctor
