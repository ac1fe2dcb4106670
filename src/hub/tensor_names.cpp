#include "hub/tensor_names.h"

#include <algorithm>
#include <charconv>
#include <optional>

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

// "mlp.experts.17.up_proj" as "mlp.experts.*.up_proj", and which one it is.
struct Stem {
  std::string text;
  int64_t expert = -1;
};

std::optional<Stem> stem_of(std::string_view name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string_view::npos) return Stem{std::string(name)};
  std::string_view rest = name.substr(at + kExperts.size());
  if (rest.empty() || rest[0] < '0' || rest[0] > '9') return Stem{std::string(name)};
  const std::optional<int64_t> expert = take_number(rest);
  if (!expert) return std::nullopt;
  return Stem{fmt::format("{}*.{}", name.substr(0, at + kExperts.size()), rest), *expert};
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

std::vector<Place> inner_places(const Family& family, std::string_view name) {
  std::vector<Place> whole;
  for (const TensorName& row : family.tensors)
    if (row.hub == name && row.gguf.find('.') != std::string_view::npos)
      whole.push_back({.name = std::string(row.gguf), .change = row.change});
  if (!whole.empty()) return whole;
  // What has all experts of a layer in one may have no word behind it.
  std::string_view kind = "weight";
  if (const size_t dot = name.rfind('.'); dot != std::string_view::npos) {
    const std::string_view last = name.substr(dot + 1);
    if (last == "weight" || last == "bias") {
      kind = last;
      name.remove_suffix(last.size() + 1);
    } else if (name.find(".experts.") == std::string_view::npos) {
      return {};
    }
  } else {
    return {};
  }
  const std::optional<Stem> stem = stem_of(name);
  std::vector<Place> out;
  for (const std::span<const TensorName> rows : {family.tensors, common_tensors()}) {
    for (const TensorName& row : rows)
      if (stem && row.hub == stem->text && row.gguf.find('.') == std::string_view::npos)
        out.push_back({.name = fmt::format("{}.{}", row.gguf, kind),
                       .change = row.change,
                       .expert = stem->expert});
    if (!out.empty()) break;  // what the family has of its own goes first
  }
  return out;
}

}  // namespace

std::vector<Place> places_of(const Config& config, std::string_view name) {
  const Family& family = *config.family;
  for (const std::string_view part : kOtherParts)
    if (name.starts_with(part)) return {Place{}};
  for (const std::string_view computed : kComputed)
    if (name.ends_with(computed)) return {Place{}};
  for (const std::string_view prefix : kPrefixes)
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  if (!name.starts_with(family.layers) || !name.substr(family.layers.size()).starts_with('.'))
    return inner_places(family, name);
  name.remove_prefix(family.layers.size() + 1);
  const std::optional<int64_t> layer = take_number(name);
  if (!layer) return {};
  if (*layer >= config.layers && *layer - config.layers < config.more_layers) return {Place{}};
  std::vector<Place> places = inner_places(family, name);
  if (places.empty() && family.head_norms)
    if (auto place = head_norm(name)) places.push_back(*std::move(place));
  for (Place& place : places) {
    place.name = fmt::format("blk.{}.{}", *layer, place.name);
    place.layer = *layer;
  }
  return places;
}

}  // namespace lockstep::hub
