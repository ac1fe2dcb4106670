#include "hub/tensor_names.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "hub/settings.h"

namespace lockstep::hub {
namespace {

// Longest first. Models that see too have the part that writes one level down.
constexpr std::string_view kPrefixes[] = {"model.language_model.", "language_model.model.",
                                          "language_model.", "model.", "transformer."};

// What the text does not go through, and what was kept although it can be computed.
constexpr std::string_view kOtherParts[] = {"vision_tower.", "model.vision_tower.",
                                            "multi_modal_projector.",
                                            "model.multi_modal_projector."};
constexpr std::string_view kComputed[] = {".rotary_emb.inv_freq", ".attn.bias",
                                          ".attn.masked_bias"};

// The number that `text` begins with and the dot behind it are taken off.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto digits = static_cast<size_t>(end - text.data());
  if (problem != std::errc() || number < 0 || number >= kMostLayers || digits >= text.size() ||
      text[digits] != '.' || (digits > 1 && text[0] == '0'))
    return std::nullopt;
  text.remove_prefix(digits + 1);
  return number;
}

const TensorName* find_row(const Family& family, std::string_view stem) {
  for (const std::span<const TensorName> rows : {family.tensors, common_tensors()})
    if (const auto found = std::ranges::find(rows, stem, &TensorName::hub); found != rows.end())
      return &*found;
  return nullptr;
}

// "self_attn.q_layernorm.norms.3".
std::optional<Place> head_norm(std::string_view inner) {
  for (const auto& [stem, to] :
       {std::pair<std::string_view, std::string_view>("self_attn.q_layernorm.norms.", "attn_q"),
        std::pair<std::string_view, std::string_view>("self_attn.k_layernorm.norms.", "attn_k")}) {
    if (!inner.starts_with(stem)) continue;
    inner.remove_prefix(stem.size());
    const std::optional<int64_t> head = take_number(inner);
    if (!head || inner != "weight") return std::nullopt;
    return Place{.name = fmt::format("{}_norm.weight", to), .head = *head};
  }
  return std::nullopt;
}

std::optional<Place> inner_place(const Family& family, std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view kind = name.substr(dot + 1);
  if (kind != "weight" && kind != "bias") return std::nullopt;
  const TensorName* row = find_row(family, name.substr(0, dot));
  if (row == nullptr) return std::nullopt;
  return Place{.name = fmt::format("{}.{}", row->gguf, kind), .change = row->change};
}

}  // namespace

std::optional<Place> place_of(const Family& family, std::string_view name) {
  for (const std::string_view part : kOtherParts)
    if (name.starts_with(part)) return Place{};
  for (const std::string_view computed : kComputed)
    if (name.ends_with(computed)) return Place{};
  for (const std::string_view prefix : kPrefixes)
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  if (!name.starts_with(family.layers) || !name.substr(family.layers.size()).starts_with('.'))
    return inner_place(family, name);
  name.remove_prefix(family.layers.size() + 1);
  const std::optional<int64_t> layer = take_number(name);
  if (!layer) return std::nullopt;
  std::optional<Place> place = inner_place(family, name);
  if (!place && family.head_norms) place = head_norm(name);
  if (!place) return std::nullopt;
  place->name = fmt::format("blk.{}.{}", *layer, place->name);
  place->layer = *layer;
  return place;
}

}  // namespace lockstep::hub
