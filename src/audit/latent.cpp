#include "audit/latent.h"

#include <cstring>
#include <functional>

#include <fmt/format.h>

#include "audit/values.h"
#include "base/text.h"

namespace lockstep::audit {
namespace {

constexpr std::string_view kWhole = ".attn_kv_b.weight";

// keys: [still, row, heads], values: [row, value, heads], whole: [row, heads * (still + value)];
// the first dimension is the one whose numbers lie side by side.
struct LatentShape {
  int64_t row, still, value, heads;
};

std::optional<LatentShape> shape_of(const gguf::Tensor& whole, const gguf::Tensor& keys,
                                    const gguf::Tensor& values) {
  const auto is_stack = [](const gguf::Tensor& t) {
    return t.dims.size() == 2 || t.dims.size() == 3;
  };
  if (whole.dims.size() != 2 || !is_stack(keys) || !is_stack(values)) return std::nullopt;
  const auto heads = [](const gguf::Tensor& t) { return t.dims.size() > 2 ? t.dims[2] : 1; };
  const LatentShape shape{keys.dims[1], keys.dims[0], values.dims[1], heads(keys)};
  const bool fits = whole.dims[0] == shape.row && values.dims[0] == shape.row &&
                    heads(values) == shape.heads &&
                    whole.dims[1] == shape.heads * (shape.still + shape.value);
  return fits ? std::optional(shape) : std::nullopt;
}

// A tensor of `values` numbers in memory of the side, each from where `from` says.
struct Source {
  const gguf::Tensor* tensor;
  int64_t index;
};
gguf::Tensor gather(Side& side, const gguf::Tensor& like, std::string name,
                    std::vector<int64_t> dims, const std::vector<const gguf::Tensor*>& sources,
                    const std::function<Source(int64_t)>& from) {
  gguf::Tensor out = like;
  out.name = std::move(name);
  out.dims = std::move(dims);
  // Formats without blocks stay as they are; what is in blocks is decoded.
  bool plain = true;
  for (const gguf::Tensor* source : sources)
    plain &= source->format == sources[0]->format && source->format->block_values == 1;
  out.format = plain ? sources[0]->format : &quant::info(quant::Format::kF32);
  const int64_t count = out.values();
  const auto size = static_cast<size_t>(quant::size_bytes(*out.format, 1));
  std::vector<std::byte>& bytes = side.memory.emplace_back(static_cast<size_t>(count) * size);
  std::vector<std::vector<float>> decoded(plain ? 0 : sources.size());
  for (size_t i = 0; i < decoded.size(); ++i) {
    decoded[i].resize(static_cast<size_t>(sources[i]->values()));
    Values(*sources[i]).read(0, sources[i]->values(), decoded[i].data());
  }
  for (int64_t i = 0; i < count; ++i) {
    const Source source = from(i);
    const size_t which = source.tensor == sources[0] ? 0 : 1;
    const std::byte* number =
        plain ? source.tensor->data.data() + static_cast<size_t>(source.index) * size
              : reinterpret_cast<const std::byte*>(
                    &decoded[which][static_cast<size_t>(source.index)]);
    std::memcpy(&bytes[static_cast<size_t>(i) * size], number, size);
  }
  out.data = bytes;
  return out;
}

void replace(Side& side, std::vector<std::string> names, std::vector<gguf::Tensor> by,
             const std::string& origin) {
  std::vector<gguf::Tensor> tensors;
  for (gguf::Tensor& tensor : side.tensors) {
    if (std::find(names.begin(), names.end(), tensor.name) == names.end()) {
      tensors.push_back(std::move(tensor));
      continue;
    }
    for (gguf::Tensor& made : by) {
      side.origins.emplace(made.name, origin);
      tensors.push_back(std::move(made));
    }
    by.clear();
  }
  side.tensors = std::move(tensors);
  side.places.clear();
  for (size_t i = 0; i < side.tensors.size(); ++i) side.places.emplace(side.tensors[i].name, i);
}

void cut_whole(Side& side, const gguf::Tensor& whole, const gguf::Tensor& keys,
               const gguf::Tensor& values, const LatentShape& s, char letter) {
  const auto place = [&](int64_t head, int64_t row_of_head, int64_t column) {
    return Source{&whole, (head * (s.still + s.value) + row_of_head) * s.row + column};
  };
  std::vector<gguf::Tensor> parts;
  parts.push_back(gather(side, whole, keys.name, keys.dims, {&whole}, [&](int64_t i) {
    return place(i / (s.still * s.row), i % s.still, i / s.still % s.row);
  }));
  parts.push_back(gather(side, whole, values.name, values.dims, {&whole}, [&](int64_t i) {
    return place(i / (s.value * s.row), s.still + i / s.row % s.value, i % s.row);
  }));
  const std::string name = whole.name;
  replace(side, {name}, std::move(parts),
          fmt::format("in {}: rows of {}", letter, printable(name)));
}

void join_parts(Side& side, const gguf::Tensor& whole, const gguf::Tensor& keys,
                const gguf::Tensor& values, const LatentShape& s, char letter) {
  std::vector<gguf::Tensor> joined;
  joined.push_back(
      gather(side, keys, whole.name, whole.dims, {&keys, &values}, [&](int64_t i) -> Source {
        const int64_t column = i % s.row, row = i / s.row;
        const int64_t head = row / (s.still + s.value), own = row % (s.still + s.value);
        if (own < s.still) return {&keys, (head * s.row + column) * s.still + own};
        return {&values, (head * s.value + own - s.still) * s.row + column};
      }));
  const std::string first = keys.name, second = values.name;
  replace(side, {first, second}, std::move(joined),
          fmt::format("in {}: {} and {}", letter, printable(first), printable(second)));
}

void lay_out(Side& has_whole, char letter_whole, Side& has_parts, char letter_parts) {
  std::vector<std::string> names;
  for (const gguf::Tensor& tensor : has_whole.tensors)
    if (tensor.name.ends_with(kWhole)) names.push_back(tensor.name);
  for (const std::string& name : names) {
    const std::string layer = name.substr(0, name.size() - kWhole.size());
    const gguf::Tensor* whole = has_whole.find(name);
    const gguf::Tensor* keys = has_parts.find(layer + ".attn_k_b.weight");
    const gguf::Tensor* values = has_parts.find(layer + ".attn_v_b.weight");
    if (has_parts.find(name) != nullptr || keys == nullptr || values == nullptr) continue;
    if (!whole->format->decodable || !keys->format->decodable || !values->format->decodable)
      continue;
    const std::optional<LatentShape> shape = shape_of(*whole, *keys, *values);
    if (!shape) continue;
    if (bits(*whole->format) >= bits(*keys->format))
      cut_whole(has_whole, *whole, *keys, *values, *shape, letter_whole);
    else
      join_parts(has_parts, *whole, *keys, *values, *shape, letter_parts);
  }
}

}  // namespace

void lay_out_latent(Sides& sides) {
  lay_out(sides.a, 'A', sides.b, 'B');
  lay_out(sides.b, 'B', sides.a, 'A');
}

}  // namespace lockstep::audit
