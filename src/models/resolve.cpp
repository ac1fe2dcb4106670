#include "models/resolve.h"

#include "base/lower.h"
#include "base/near_names.h"

namespace lockstep::models {
namespace {

// What a name without its precision means, first choice first.
constexpr std::string_view kPrecisions[] = {"q4_k_m", "q4",   "q5_k_m", "q8_0", "q4_1",
                                            "f16",    "fp16", "bf16",   "f32"};

}  // namespace

std::optional<size_t> resolve(std::string_view name, std::span<const std::string> names) {
  const std::string wanted = ascii_lower(name);
  const auto index_of = [&](const std::string& text) -> std::optional<size_t> {
    for (size_t i = 0; i < names.size(); ++i)
      if (ascii_lower(names[i]) == text) return i;
    return std::nullopt;
  };
  if (const auto exact = index_of(wanted)) return exact;
  const std::string family = wanted == kDefaultModel ? "haiku-llama" : wanted;
  for (const std::string_view precision : kPrecisions)
    if (const auto found = index_of(family + "-" + std::string(precision))) return found;
  return index_of(family);
}

std::vector<std::string> near_models(std::string_view name, std::span<const std::string> names) {
  const std::string wanted = ascii_lower(name);
  std::vector<std::string> near = near_names(wanted, names);
  if (!near.empty()) return near;
  // Names are long, and people type their beginning ("tinylama").
  for (const std::string& known : names) {
    const std::vector<std::string> beginning = {known.substr(0, wanted.size())};
    if (near.size() < 3 && !near_names(wanted, beginning).empty()) near.push_back(known);
  }
  return near;
}

}  // namespace lockstep::models
