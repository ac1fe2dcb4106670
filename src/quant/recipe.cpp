#include "quant/recipe.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace lockstep::quant {
namespace {

constexpr Recipe kRecipes[] = {
    {"F32", Format::kF32, 0},      {"F16", Format::kF16, 1},      {"BF16", Format::kBF16, 32},
    {"Q8_0", Format::kQ8_0, 7},    {"Q6_K", Format::kQ6_K, 18},   {"Q5_K_M", Format::kQ5_K, 17},
    {"Q5_K_S", Format::kQ5_K, 16}, {"Q5_1", Format::kQ5_1, 9},    {"Q5_0", Format::kQ5_0, 8},
    {"Q4_K_M", Format::kQ4_K, 15}, {"Q4_K_S", Format::kQ4_K, 14}, {"Q4_1", Format::kQ4_1, 3},
    {"Q4_0", Format::kQ4_0, 2},    {"MXFP4", Format::kMXFP4, 38}, {"Q3_K_M", Format::kQ3_K, 12},
    {"Q3_K_S", Format::kQ3_K, 11}, {"Q2_K", Format::kQ2_K, 10},
};

bool same(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::toupper(static_cast<unsigned char>(x)) ==
           std::toupper(static_cast<unsigned char>(y));
  });
}

// N of "blk.N.", or -1.
int64_t layer_of(std::string_view tensor) {
  if (!tensor.starts_with("blk.")) return -1;
  tensor.remove_prefix(4);
  int64_t layer = -1;
  const auto [end, problem] = std::from_chars(tensor.data(), tensor.data() + tensor.size(), layer);
  const bool whole = problem == std::errc() && end != tensor.data() + tensor.size() && *end == '.';
  return whole ? layer : -1;
}

// The layers that are worth more bits.
bool favoured(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

Format attn_v_format(std::string_view recipe, Format base, const ModelShape& model, int64_t layer) {
  Format format = base;
  if (recipe == "Q2_K") {
    const bool shared = model.kv_heads > 0 && model.heads / model.kv_heads >= 4;
    format = shared ? Format::kQ4_K : Format::kQ3_K;
  } else if (recipe == "Q3_K_M") {
    format = layer < 2 ? Format::kQ5_K : Format::kQ4_K;
  } else if (recipe == "Q4_K_S" && layer < 4) {
    format = Format::kQ5_K;
  } else if ((recipe == "Q4_K_M" || recipe == "Q5_K_M") && favoured(layer, model.layers)) {
    format = Format::kQ6_K;
  }
  // Models of 70B, by their 80 layers: attn_v is an eighth of attn_q, so more bits cost little.
  const bool large = model.layers == 80 && model.heads != model.kv_heads;
  if (large && (format == Format::kQ3_K || format == Format::kQ4_K)) format = Format::kQ5_K;
  return format;
}

Format ffn_down_format(std::string_view recipe, Format base, const ModelShape& model,
                       int64_t layer) {
  if (recipe == "Q2_K") return Format::kQ3_K;
  if (recipe == "Q3_K_M") return layer < model.layers / 16 ? Format::kQ5_K : Format::kQ4_K;
  if (recipe == "Q4_K_S" && layer < model.layers / 8) return Format::kQ5_K;
  if ((recipe == "Q4_K_M" || recipe == "Q5_K_M") && favoured(layer, model.layers))
    return Format::kQ6_K;
  return base;
}

// Fused q, k and v: one step up throughout, as in the published Phi-3 files. (Newer llama.cpp
// versions treat it like attn_v.)
Format attn_qkv_format(std::string_view recipe, Format base) {
  if (recipe == "Q3_K_M") return Format::kQ4_K;
  if (recipe == "Q4_K_M") return Format::kQ5_K;
  if (recipe == "Q5_K_M") return Format::kQ6_K;
  return base;
}

Format attn_output_format(std::string_view recipe, Format base) {
  if (recipe == "Q2_K") return Format::kQ3_K;
  if (recipe == "Q3_K_M") return Format::kQ4_K;
  return base;
}

}  // namespace

std::span<const Recipe> all_recipes() {
  return kRecipes;
}

const Recipe* find_recipe(std::string_view name) {
  const auto* found =
      std::ranges::find_if(kRecipes, [&](const Recipe& r) { return same(r.name, name); });
  return found != std::end(kRecipes) ? found : nullptr;
}

std::string recipe_names() {
  std::string names;
  for (const Recipe& recipe : kRecipes) {
    if (!names.empty()) names += ", ";
    names += recipe.name;
  }
  return names;
}

bool is_quantized_weight(std::string_view tensor, std::span<const int64_t> dims) {
  // A matrix at least: a second or further dimension that is more than one.
  const auto is_one = [](int64_t dim) { return dim == 1; };
  if (dims.empty() || std::ranges::all_of(dims.subspan(1), is_one)) return false;
  if (!tensor.ends_with("weight") || tensor.find("_norm.weight") != tensor.npos) return false;
  if (tensor.find("ffn_gate_inp.weight") != tensor.npos) return false;
  return tensor != "position_embd.weight" && tensor != "token_types.weight";
}

Format choose_format(const Recipe& recipe, const ModelShape& model, std::string_view tensor,
                     std::span<const int64_t> dims) {
  if (!is_quantized_weight(tensor, dims)) return Format::kF32;
  Format format = recipe.base;
  const bool whole_numbers = info(format).block_values > 1;
  if (!whole_numbers) return format;  // F32, F16, BF16: all weights alike
  const auto is = [&](std::string_view part) { return tensor.ends_with(part); };
  const int64_t layer = layer_of(tensor);
  const bool embedding = tensor == "token_embd.weight";
  if (tensor == "output.weight" || (embedding && model.tied_output)) {
    const bool plain = recipe.base == Format::kQ8_0 || recipe.base == Format::kMXFP4;
    format = plain ? Format::kQ8_0 : Format::kQ6_K;
  } else if (recipe.base == Format::kMXFP4 &&
             (embedding || (model.experts && tensor.find("_exps.") == tensor.npos))) {
    // A 4-bit float with a power-of-two scale is too coarse for rows that are looked up. Beside
    // experts it is for these alone.
    format = Format::kQ8_0;
  } else if (is("attn_v.weight")) {
    format = attn_v_format(recipe.name, format, model, layer);
  } else if (is("ffn_down.weight") || is("ffn_down_exps.weight")) {
    format = ffn_down_format(recipe.name, format, model, layer);
  } else if (is("attn_qkv.weight")) {
    format = attn_qkv_format(recipe.name, format);
  } else if (is("attn_output.weight")) {
    format = attn_output_format(recipe.name, format);
  }
  return fit_row(format, dims[0]);
}

Format fit_row(Format format, int64_t row_length) {
  if (row_length % info(format).block_values == 0) return format;
  switch (format) {
    case Format::kQ2_K:
    case Format::kQ3_K:
      format = Format::kQ4_0;
      break;
    case Format::kQ4_K:
      format = Format::kQ5_0;
      break;
    case Format::kQ5_K:
      format = Format::kQ5_1;
      break;
    case Format::kQ6_K:
      format = Format::kQ8_0;
      break;
    case Format::kIQ4_XS:
      format = Format::kIQ4_NL;
      break;
    default:
      return Format::kF16;
  }
  return row_length % info(format).block_values == 0 ? format : Format::kF16;
}

}  // namespace lockstep::quant
