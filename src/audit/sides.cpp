#include "audit/sides.h"

#include <optional>

#include <fmt/format.h>

#include "audit/latent.h"
#include "base/text.h"

namespace lockstep::audit {
namespace {

// Under the same words before and behind, row under row.
struct Fused {
  std::string_view whole;
  std::vector<std::string_view> parts;
};

const std::vector<Fused>& fused_tensors() {
  static const std::vector<Fused> all = {{"attn_qkv", {"attn_q", "attn_k", "attn_v"}},
                                         {"ffn_up", {"ffn_gate", "ffn_up"}}};
  return all;
}

// Older files have a tensor for each expert: "blk.0.ffn_gate.5.weight".
constexpr std::string_view kExperts[] = {"ffn_gate", "ffn_up", "ffn_down"};

// "blk.3.", "attn_q", ".weight".
struct NameParts {
  std::string before, stem, behind;
};

std::optional<NameParts> split_name(const std::string& name) {
  if (!name.starts_with("blk.")) return std::nullopt;
  const size_t layer_end = name.find('.', 4), last = name.rfind('.');
  if (layer_end == std::string::npos || last <= layer_end) return std::nullopt;
  return NameParts{name.substr(0, layer_end + 1), name.substr(layer_end + 1, last - layer_end - 1),
                   name.substr(last)};
}

// The names that the parts of a tensor have where it is in parts, which are at most `most`.
std::vector<std::string> part_names(const gguf::Tensor& tensor, size_t most) {
  std::vector<std::string> names;
  const std::optional<NameParts> name = split_name(tensor.name);
  if (!name) return names;
  for (const Fused& fused : fused_tensors())
    if (name->stem == fused.whole)
      for (const std::string_view part : fused.parts)
        names.push_back(fmt::format("{}{}{}", name->before, part, name->behind));
  if (tensor.dims.size() != 3 || static_cast<size_t>(tensor.dims[2]) > most) return names;
  for (const std::string_view stem : kExperts)
    if (name->stem == fmt::format("{}_exps", stem))
      for (int64_t expert = 0; expert < tensor.dims[2]; ++expert)
        names.push_back(fmt::format("{}{}.{}{}", name->before, stem, expert, name->behind));
  return names;
}

// The parts of `tensor` as the other file has them; none where that file has it whole, or in parts
// that do not make up this one.
std::vector<gguf::Tensor> cut(const gguf::Tensor& tensor, const gguf::File& own,
                              const gguf::File& other) {
  const std::vector<std::string> names = part_names(tensor, other.tensors().size());
  const bool is_vector = tensor.dims.size() == 1;
  const int64_t width = is_vector ? 1 : tensor.dims[0];
  const int64_t block = tensor.format->block_values;
  std::vector<gguf::Tensor> parts;
  int64_t done = 0;
  for (const std::string& name : names) {
    const gguf::Tensor* theirs = other.tensor(name);
    if (theirs == nullptr || (name != tensor.name && own.tensor(name) != nullptr)) return {};
    const int64_t values = theirs->values();
    if (values == 0 || values % width != 0 || values % block != 0 ||
        values > tensor.values() - done)
      return {};
    const auto first = static_cast<size_t>(quant::size_bytes(*tensor.format, done));
    const auto bytes = static_cast<size_t>(quant::size_bytes(*tensor.format, values));
    gguf::Tensor part = tensor;
    part.name = name;
    part.dims = is_vector ? std::vector{values} : std::vector{width, values / width};
    part.data = tensor.data.subspan(first, bytes);
    part.file_offset += static_cast<int64_t>(first);
    parts.push_back(std::move(part));
    done += values;
  }
  if (done != tensor.values()) return {};
  return parts;
}

Side side_of(const gguf::File& own, const gguf::File& other, char letter) {
  Side out;
  out.path = own.path();
  for (const gguf::Tensor& tensor : own.tensors()) {
    int64_t row = 0;
    std::vector<gguf::Tensor> parts = cut(tensor, own, other);
    for (gguf::Tensor& part : parts) {
      const int64_t end = row + part.dims.back();
      out.origins.emplace(part.name, fmt::format("in {}: rows {} to {} of {}", letter, row, end - 1,
                                                 printable(tensor.name)));
      row = end;
      out.tensors.push_back(std::move(part));
    }
    if (parts.empty()) out.tensors.push_back(tensor);
  }
  for (size_t i = 0; i < out.tensors.size(); ++i) out.places.emplace(out.tensors[i].name, i);
  return out;
}

}  // namespace

const gguf::Tensor* Side::find(const std::string& name) const {
  const auto found = places.find(name);
  return found != places.end() ? &tensors[found->second] : nullptr;
}

Sides side_by_side(const gguf::File& a, const gguf::File& b) {
  Sides sides{side_of(a, b, 'A'), side_of(b, a, 'B')};
  lay_out_latent(sides);
  return sides;
}

}  // namespace lockstep::audit
