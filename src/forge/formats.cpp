#include "forge/formats.h"

#include <cctype>

#include <fmt/ranges.h>

namespace lockstep::forge {
namespace {

// Formats that no recipe is named after, with the file type that comes nearest.
constexpr quant::Recipe kPlainFormats[] = {
    {"Q5_K", quant::Format::kQ5_K, 16},     {"Q4_K", quant::Format::kQ4_K, 14},
    {"Q3_K", quant::Format::kQ3_K, 11},     {"IQ4_NL", quant::Format::kIQ4_NL, 25},
    {"IQ4_XS", quant::Format::kIQ4_XS, 30},
};

std::string small_letters(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

Result<FormatChoice> FormatChoice::find(std::string_view type, bool pure) {
  if (const quant::Recipe* recipe = quant::find_recipe(type)) return FormatChoice(*recipe, pure);
  for (const quant::Recipe& plain : kPlainFormats)
    if (small_letters(plain.name) == small_letters(type)) return FormatChoice(plain, true);
  return error("type '{}' is unknown; known: {}", type, fmt::join(type_names(), ", "));
}

quant::Format FormatChoice::format_of(const quant::ModelShape& model, std::string_view tensor,
                                      std::span<const int64_t> dims) const {
  if (!pure_) return quant::choose_format(recipe_, model, tensor, dims);
  if (!quant::is_quantized_weight(tensor, dims)) return quant::Format::kF32;
  return quant::fit_row(recipe_.base, dims[0]);
}

uint32_t FormatChoice::file_type() const {
  return recipe_.file_type;
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const quant::Recipe& recipe : quant::all_recipes())
    names.push_back(small_letters(recipe.name));
  for (const quant::Recipe& plain : kPlainFormats) names.push_back(small_letters(plain.name));
  return names;
}

}  // namespace lockstep::forge
