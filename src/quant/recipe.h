// Which format each tensor of a model gets: the mixes that GGUF files are published in.
//
// Facts about the mixes are llama.cpp's: attn_v and ffn_down matter most, so some recipes give them
// more bits in the first and last eighth of the layers and every third between; the output matrix
// (or the embedding, where it is tied) gets Q6_K or better. docs/quantization.md lists the rules.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "quant/format.h"

namespace lockstep::quant {

struct Recipe {
  std::string_view name;  // "Q4_K_M"
  Format base;            // of most weights
  uint32_t file_type;     // GGUF's number for it, `general.file_type`
};

std::span<const Recipe> all_recipes();

// nullptr where there is none; any case.
const Recipe* find_recipe(std::string_view name);

// "F32, F16, ...", for messages.
std::string recipe_names();

// What the choice depends on besides the tensor.
struct ModelShape {
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  bool tied_output = false;  // no output.weight: the embedding serves as one
  bool experts = false;
};

// Whether recipes touch the tensor at all. Norms, biases, one-dimensional tensors, positions and
// expert routers stay F32.
bool is_quantized_weight(std::string_view tensor, std::span<const int64_t> dims);

// The format that the recipe gives the tensor. dims[0] is the row length.
Format choose_format(const Recipe& recipe, const ModelShape& model, std::string_view tensor,
                     std::span<const int64_t> dims);

// The format itself where rows are whole numbers of its blocks, else the nearest that fits:
// Q2_K and Q3_K become Q4_0, Q4_K Q5_0, Q5_K Q5_1, Q6_K Q8_0; where 32 does not fit either, F16.
Format fit_row(Format format, int64_t row_length);

}  // namespace lockstep::quant
