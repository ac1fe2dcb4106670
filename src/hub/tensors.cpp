#include "hub/tensors.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/ranges.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "hub/reorder.h"
#include "hub/stored_numbers.h"
#include "hub/tensor_names.h"

namespace lockstep::hub {
namespace {

using trace::StoredTensor;

// A tensor to be, of one of the hub or of several.
struct Recipe {
  std::vector<const StoredWeight*> parts;
  std::vector<const StoredWeight*> scales;  // of each part; null where it has none
  std::vector<int64_t> indexes;             // of the parts, where each is a head's or an expert's
  Place place;
  std::string first_name;  // on the hub, for messages
};

// What GGUF files have as floats whatever the others are.
bool is_kept_exact(const gguf::Tensor& tensor) {
  return tensor.dims.size() == 1 || tensor.name.ends_with(".bias") ||
         tensor.name.ends_with("_norm.weight") || tensor.name.ends_with("ffn_gate_inp.weight");
}

class Maker {
 public:
  Maker(const Config& config, const std::string& source) : config_(config), source_(source) {}

  Result<void> add(const Recipe& recipe) {
    const StoredTensor& first = recipe.parts[0]->tensor;
    const bool blocks = is_packed(recipe);
    LS_TRY(const NumberType* type, type_of(recipe));
    if (first.shape.empty() || std::ranges::find(first.shape, 0) != first.shape.end())
      return fail(recipe,
                  fmt::format("found shape [{}], expected numbers", fmt::join(first.shape, ", ")));
    if (recipe.place.head >= 0) LS_TRY_VOID(check_heads(recipe));
    if (recipe.place.expert >= 0) LS_TRY_VOID(check_experts(recipe));
    std::vector<int64_t> shape = first.shape;
    if (blocks) shape.pop_back();  // the bytes of a block
    const Result<Reordered> to = reorder(recipe.place.change, shape, recipe.place.name, config_);
    if (!to.ok()) return fail(recipe, to.error().message);

    gguf::Tensor tensor;
    tensor.name = recipe.place.name;
    tensor.dims.assign(to->shape.rbegin(), to->shape.rend());
    if (blocks) tensor.dims[0] *= kPackedNumbers;
    if (recipe.place.head >= 0 || recipe.place.expert >= 0)
      tensor.dims.push_back(static_cast<int64_t>(recipe.parts.size()));
    // One row is a vector.
    if (tensor.name.ends_with("_inp_shexp.weight") && tensor.dims.size() == 2 &&
        tensor.dims[1] == 1)
      tensor.dims.pop_back();

    const bool floats = is_kept_exact(tensor);
    tensor.format = &quant::info(blocks   ? quant::Format::kMXFP4
                                 : floats ? quant::Format::kF32
                                          : type->format);
    const bool aligned = reinterpret_cast<uintptr_t>(first.data.data()) %
                             static_cast<uintptr_t>(size_bytes(type->dtype)) ==
                         0;
    const bool same = recipe.place.change == Change::kNone && recipe.place.head < 0 &&
                      recipe.place.expert < 0 && recipe.scales[0] == nullptr && aligned &&
                      (!floats || type->dtype == DType::kF32);
    if (same) {
      tensor.data = first.data;
      tensor.file_offset = recipe.parts[0]->file_offset;
    } else {
      tensor.made = true;
      made_.push_back({out_.tensors.size(), &recipe, to->order});
    }
    out_.tensors.push_back(std::move(tensor));
    return {};
  }

  void add(const Factors& factors) {
    gguf::Tensor tensor;
    tensor.name = factors.name;
    tensor.format = &quant::info(quant::Format::kF32);
    tensor.dims = {static_cast<int64_t>(factors.numbers.size())};
    tensor.made = true;
    const auto bytes = std::as_bytes(std::span(factors.numbers));
    out_.memory.emplace_back(bytes.begin(), bytes.end());
    tensor.data = out_.memory.back();
    out_.tensors.push_back(std::move(tensor));
  }

  Result<Tensors> finish() {
    int64_t bytes = 0;
    for (const Made& made : made_) bytes += bytes_of(out_.tensors[made.index]);
    if (const int64_t free = available_memory_bytes(); bytes > free)
      return error(
          "{}: {}B of tensors stand in another order in GGUF files; {}B of memory are free",
          printable(source_), human(bytes), human(free));
    for (const Made& made : made_) {
      gguf::Tensor& tensor = out_.tensors[made.index];
      out_.memory.emplace_back(static_cast<size_t>(bytes_of(tensor)));
      tensor.data = out_.memory.back();
    }
    const size_t first = out_.memory.size() - made_.size();
    parallel_for(static_cast<int64_t>(made_.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        fill(made_[i], out_.memory[first + i].data());
    });
    return std::move(out_);
  }

 private:
  struct Made {
    size_t index;  // of the tensor
    const Recipe* recipe;
    Order order;
  };

  static int64_t bytes_of(const gguf::Tensor& tensor) {
    return quant::size_bytes(*tensor.format, tensor.values());
  }

  Error fail(const Recipe& recipe, const std::string& what) const {
    return error("{}: tensor '{}': {}", printable(source_), printable(recipe.first_name, 120),
                 what);
  }

  static bool is_packed(const Recipe& recipe) { return recipe.first_name.ends_with(kBlocks); }

  // What the numbers are, or become: of eight bits, floats. Of blocks, bytes.
  Result<const NumberType*> type_of(const Recipe& recipe) const {
    const StoredTensor& first = recipe.parts[0]->tensor;
    if (is_packed(recipe)) {
      LS_TRY_VOID(check_blocks(recipe));
      return &kNumberTypes[0];
    }
    for (size_t i = 0; i < recipe.parts.size(); ++i)
      if (is_eight_bits(recipe.parts[i]->tensor)) LS_TRY_VOID(check_scales(recipe, i));
    if (is_eight_bits(first)) return &kNumberTypes[0];
    const NumberType* type = number_type(first);
    if (type == nullptr)
      return fail(recipe, fmt::format("found numbers of type {}, expected F32, F16, BF16 or {}",
                                      first.type->name, kEightBits));
    return type;
  }

  Result<void> check_blocks(const Recipe& recipe) const {
    const StoredTensor& blocks = recipe.parts[0]->tensor;
    if (recipe.scales[0] == nullptr)
      return fail(recipe, fmt::format("found no '{}', expected the scales of these blocks",
                                      scales_name(recipe.first_name)));
    const StoredTensor& scales = recipe.scales[0]->tensor;
    std::vector<int64_t> expected = scales.shape;
    expected.push_back(kPackedNumbers / 2);
    if (blocks.type->name == "U8" && scales.type->name == "U8" && scales.shape.size() >= 2 &&
        blocks.shape == expected)
      return {};
    return fail(recipe,
                fmt::format("found blocks of shape [{}] and type {}, scales of shape [{}] "
                            "and type {}, expected for each scale a block of {} bytes, all "
                            "of type U8",
                            fmt::join(blocks.shape, ", "), blocks.type->name,
                            fmt::join(scales.shape, ", "), scales.type->name, kPackedNumbers / 2));
  }

  Result<void> check_scales(const Recipe& recipe, size_t part) const {
    const StoredTensor& tensor = recipe.parts[part]->tensor;
    if (config_.block_rows == 0)
      return fail(recipe, fmt::format("found numbers of type {}, expected weight_block_size in the "
                                      "quantization_config of config.json for these",
                                      kEightBits));
    if (recipe.scales[part] == nullptr)
      return fail(recipe, fmt::format("found no '{}', expected one for numbers of type {}",
                                      scales_name(recipe.first_name), kEightBits));
    const StoredTensor& scales = recipe.scales[part]->tensor;
    const auto blocks = [](int64_t extent, int64_t size) { return (extent + size - 1) / size; };
    if (tensor.shape.size() == 2 && number_type(scales) != nullptr && scales.shape.size() == 2 &&
        scales.shape[0] == blocks(tensor.shape[0], config_.block_rows) &&
        scales.shape[1] == blocks(tensor.shape[1], config_.block_columns))
      return {};
    return fail(recipe,
                fmt::format("found scales of shape [{}] and type {}, expected a float for "
                            "each block of {} by {} numbers of shape [{}]",
                            fmt::join(scales.shape, ", "), scales.type->name, config_.block_rows,
                            config_.block_columns, fmt::join(tensor.shape, ", ")));
  }

  // Whether the parts are numbered from 0 on and alike.
  static bool are_alike(const Recipe& recipe, size_t dimensions) {
    for (size_t i = 0; i < recipe.parts.size(); ++i)
      if (recipe.indexes[i] != static_cast<int64_t>(i) ||
          recipe.parts[i]->tensor.shape != recipe.parts[0]->tensor.shape ||
          recipe.parts[i]->tensor.type != recipe.parts[0]->tensor.type ||
          recipe.parts[i]->tensor.shape.size() != dimensions)
        return false;
    return true;
  }

  Result<void> check_heads(const Recipe& recipe) const {
    const bool queries = recipe.place.name.ends_with("attn_q_norm.weight");
    const int64_t expected = queries ? config_.heads : config_.kv_heads;
    if (static_cast<int64_t>(recipe.parts.size()) == expected && are_alike(recipe, 1)) return {};
    return fail(recipe, fmt::format("found norms of {} heads, expected one of the same size for "
                                    "each of {} heads",
                                    recipe.parts.size(), expected));
  }

  Result<void> check_experts(const Recipe& recipe) const {
    if (are_alike(recipe, 2)) return {};
    return fail(recipe, fmt::format("found {} experts, the last of number {}, expected matrices of "
                                    "the same size and type for experts from 0 on",
                                    recipe.parts.size(), recipe.indexes.back()));
  }

  PartNumbers numbers_of(const Recipe& recipe, size_t part) const {
    const StoredTensor& tensor = recipe.parts[part]->tensor;
    if (!is_eight_bits(tensor)) return {tensor.data.data(), number_type(tensor)->dtype};
    PartNumbers out;
    out.made = scaled_floats(tensor, recipe.scales[part]->tensor, config_.block_rows,
                             config_.block_columns);
    out.data = reinterpret_cast<const std::byte*>(out.made.data());
    return out;
  }

  void fill(const Made& made, std::byte* out) const {
    const Recipe& recipe = *made.recipe;
    const Order& order = made.order;
    if (is_packed(recipe)) {
      std::vector<std::byte> codes(static_cast<size_t>(order.numbers() * kPackedNumbers / 2));
      std::vector<std::byte> scales(static_cast<size_t>(order.numbers()));
      copy_in_order(recipe.parts[0]->tensor.data.data(), order, kPackedNumbers / 2, codes.data());
      copy_in_order(recipe.scales[0]->tensor.data.data(), order, 1, scales.data());
      write_packed(codes, scales, out);
      return;
    }
    for (size_t part = 0; part < recipe.parts.size(); ++part) {
      PartNumbers numbers = numbers_of(recipe, part);
      if (is_kept_exact(out_.tensors[made.index]))
        make_floats(numbers, recipe.parts[part]->tensor,
                    recipe.place.change == Change::kAddOne ? 1.0F : 0.0F);
      const int64_t width = size_bytes(numbers.dtype);
      copy_in_order(numbers.data, order, width, out);
      out += order.numbers() * width;
    }
  }

  const Config& config_;
  const std::string& source_;
  Tensors out_;
  std::vector<Made> made_;
};

// Scales belong to a weight.
bool is_of_another(const std::string& name, const StoredWeights& weights) {
  const auto end = [&](std::string_view mark) { return name.substr(0, name.size() - mark.size()); };
  return (name.ends_with(kScales) && weights.contains(end(kScales))) ||
         (name.ends_with(kBlockScales) &&
          weights.contains(end(kBlockScales) + std::string(kBlocks)));
}

// By the name that they get; those of one layer stand together.
using Recipes = std::map<std::tuple<int64_t, std::string>, Recipe>;

Result<Recipes> plan(const Config& config, const StoredWeights& weights,
                     const std::string& source) {
  Recipes recipes;
  for (const auto& [name, weight] : weights) {
    if (is_of_another(name, weights)) continue;
    std::vector<Place> places = places_of(config, name);
    if (places.empty())
      return error("{}: tensor '{}' has no place in a model of type {}", printable(source),
                   printable(name, 120), config.family->model_type);
    const auto scale = weights.find(scales_name(name));
    for (Place& place : places) {
      if (place.name.empty()) continue;
      // The hub's engines take the table of the embeddings then, whatever stands here.
      if (place.name == "output.weight" && config.tied) continue;
      Recipe& recipe = recipes[{place.layer, place.name}];
      const int64_t index = std::max(place.head, place.expert);
      if (!recipe.parts.empty() && (index < 0 || recipe.indexes.front() < 0))
        return error("{}: tensors '{}' and '{}' are the same one, {}", printable(source),
                     printable(recipe.first_name, 120), printable(name, 120), place.name);
      // Parts stand in the order of their numbers, names in that of their letters.
      const auto at = std::ranges::upper_bound(recipe.indexes, index) - recipe.indexes.begin();
      recipe.parts.insert(recipe.parts.begin() + at, &weight);
      recipe.scales.insert(recipe.scales.begin() + at,
                           scale != weights.end() ? &scale->second : nullptr);
      recipe.indexes.insert(recipe.indexes.begin() + at, index);
      recipe.first_name = name;
      recipe.place = std::move(place);
    }
  }
  return recipes;
}

// Engines do not read a key of GGUF files for it: that the norm before the feed-forward part is
// there, or not, tells.
Result<void> check_parallel(const Config& config, const Recipes& recipes,
                            const std::string& source) {
  for (int64_t layer = 0; config.parallel && layer < config.layers; ++layer) {
    const bool found = recipes.contains({layer, fmt::format("blk.{}.ffn_norm.weight", layer)});
    if (found == *config.parallel)
      return error(
          "{}: found {} tensor 'model.layers.{}.post_attention_layernorm.weight', expected "
          "{} where use_parallel_residual is {}",
          printable(source), found ? "a" : "no", layer, found ? "none" : "one", found);
  }
  return {};
}

}  // namespace

Result<Tensors> make_tensors(const Config& config, const StoredWeights& weights,
                             const std::string& source) {
  LS_TRY(const Recipes recipes, plan(config, weights, source));
  if (config.has_output && !recipes.contains({-1, "output.weight"}))
    return error(
        "{}: found no tensor 'lm_head.weight', expected one where tie_word_embeddings is "
        "false",
        printable(source));
  LS_TRY_VOID(check_parallel(config, recipes, source));
  Maker maker(config, source);
  for (const Factors& factors : config.factors) maker.add(factors);
  for (const auto& [key, recipe] : recipes) LS_TRY_VOID(maker.add(recipe));
  return maker.finish();
}

}  // namespace lockstep::hub
