#include "hub/tensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include <fmt/ranges.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "hub/tensor_names.h"

namespace lockstep::hub {
namespace {

using trace::StoredTensor;

struct NumberType {
  std::string_view stored;
  DType dtype;
  quant::Format format;
};
constexpr NumberType kNumberTypes[] = {
    {"F32", DType::kF32, quant::Format::kF32},
    {"F16", DType::kF16, quant::Format::kF16},
    {"BF16", DType::kBF16, quant::Format::kBF16},
};

const NumberType* number_type(const StoredTensor& tensor) {
  const auto* found = std::ranges::find(kNumberTypes, tensor.type->name, &NumberType::stored);
  return found != std::end(kNumberTypes) ? found : nullptr;
}

// A tensor to be, of one of the hub or of several.
struct Recipe {
  std::vector<const StoredWeight*> parts;
  std::vector<int64_t> heads;  // of the parts, where each has one
  Place place;
  std::string first_name;  // on the hub, for messages
};

int64_t values_of(std::span<const int64_t> shape) {
  int64_t values = 1;
  for (const int64_t extent : shape) values *= extent;  // the reader has checked the product
  return values;
}

// As F32, as GGUF files have what is added and what norms multiply with.
void write_floats(const StoredTensor& from, const NumberType& type, float more, std::byte* out) {
  const int64_t width = size_bytes(type.dtype);
  for (int64_t i = 0; i < values_of(from.shape); ++i) {
    const float value =
        static_cast<float>(load_number(type.dtype, from.data.data() + i * width)) + more;
    std::memcpy(out + i * 4, &value, sizeof value);
  }
}

void write_transposed(const StoredTensor& from, int64_t width, std::byte* out) {
  const int64_t rows = from.shape[0], columns = from.shape[1];
  constexpr int64_t kTile = 64;  // numbers: both sides stay in the cache
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < columns; c0 += kTile)
      for (int64_t c = c0; c < std::min(c0 + kTile, columns); ++c)
        for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r)
          std::memcpy(out + (c * rows + r) * width, from.data.data() + (r * columns + c) * width,
                      static_cast<size_t>(width));
}

// Row 2i + h of a head comes from its row i + h * half.
void write_paired(const std::byte* from, int64_t rows, int64_t row_bytes, int64_t heads,
                  std::byte* out) {
  const int64_t head_rows = rows / heads, half = head_rows / 2;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t head = row / head_rows, inner = row % head_rows;
    const int64_t source = head * head_rows + inner / 2 + inner % 2 * half;
    std::memcpy(out + row * row_bytes, from + source * row_bytes, static_cast<size_t>(row_bytes));
  }
}

class Maker {
 public:
  Maker(const Config& config, const std::string& source) : config_(config), source_(source) {}

  Result<void> add(const Recipe& recipe) {
    const StoredWeight& first = *recipe.parts[0];
    const NumberType* type = number_type(first.tensor);
    if (type == nullptr)
      return fail(recipe, fmt::format("found numbers of type {}, expected F32, F16 or BF16",
                                      first.tensor.type->name));
    gguf::Tensor tensor;
    tensor.name = recipe.place.name;
    tensor.dims.assign(first.tensor.shape.rbegin(), first.tensor.shape.rend());
    if (tensor.dims.empty() || std::ranges::find(tensor.dims, 0) != tensor.dims.end())
      return fail(recipe, fmt::format("found shape [{}], expected numbers",
                                      fmt::join(first.tensor.shape, ", ")));
    if (recipe.parts.size() > 1 || recipe.place.head >= 0) {
      LS_TRY_VOID(check_heads(recipe));
      tensor.dims.push_back(static_cast<int64_t>(recipe.parts.size()));
    }
    LS_TRY(const int64_t heads, heads_of(recipe, first.tensor));
    const bool transposed = recipe.place.change == Change::kTranspose && tensor.dims.size() == 2;
    if (transposed) std::swap(tensor.dims[0], tensor.dims[1]);

    const bool floats = tensor.dims.size() == 1 || tensor.name.ends_with("_norm.weight");
    tensor.format = &quant::info(floats ? quant::Format::kF32 : type->format);
    const bool aligned = reinterpret_cast<uintptr_t>(first.tensor.data.data()) %
                             static_cast<uintptr_t>(size_bytes(type->dtype)) ==
                         0;
    const bool same = heads == 0 && !transposed && recipe.place.change != Change::kAddOne &&
                      recipe.place.head < 0 && aligned && (!floats || type->dtype == DType::kF32);
    if (same) {
      tensor.data = first.tensor.data;
      tensor.file_offset = first.file_offset;
    } else {
      tensor.made = true;
      made_.push_back({out_.tensors.size(), &recipe, type, heads});
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
    const NumberType* type;
    int64_t heads;  // whose rows are paired; 0: they stay
  };

  static int64_t bytes_of(const gguf::Tensor& tensor) {
    return quant::size_bytes(*tensor.format, tensor.values());
  }

  Error fail(const Recipe& recipe, const std::string& what) const {
    return error("{}: tensor '{}': {}", printable(source_), printable(recipe.first_name, 120),
                 what);
  }

  Result<void> check_heads(const Recipe& recipe) const {
    const bool queries = recipe.place.name.ends_with("attn_q_norm.weight");
    const int64_t expected = queries ? config_.heads : config_.kv_heads;
    bool fits = static_cast<int64_t>(recipe.parts.size()) == expected;
    for (size_t i = 0; fits && i < recipe.parts.size(); ++i)
      fits = recipe.heads[i] == static_cast<int64_t>(i) &&
             recipe.parts[i]->tensor.shape == recipe.parts[0]->tensor.shape &&
             recipe.parts[i]->tensor.type == recipe.parts[0]->tensor.type &&
             recipe.parts[i]->tensor.shape.size() == 1;
    if (fits) return {};
    return fail(recipe, fmt::format("found norms of {} heads, expected one of the same size for "
                                    "each of {} heads",
                                    recipe.parts.size(), expected));
  }

  // How many heads the rows are shared by, where their order changes.
  Result<int64_t> heads_of(const Recipe& recipe, const StoredTensor& tensor) const {
    if (recipe.place.change != Change::kPairHeads && recipe.place.change != Change::kPairKvHeads)
      return 0;
    const bool queries = recipe.place.change == Change::kPairHeads;
    const int64_t heads = queries ? config_.heads : config_.kv_heads;
    if (tensor.shape[0] % (2 * heads) == 0) return heads;
    return fail(recipe, fmt::format("found {} rows, expected an even number for each of {} heads",
                                    tensor.shape[0], heads));
  }

  void fill(const Made& made, std::byte* out) const {
    const Recipe& recipe = *made.recipe;
    const StoredTensor& first = recipe.parts[0]->tensor;
    const bool floats = out_.tensors[made.index].format == &quant::info(quant::Format::kF32);
    const int64_t width = size_bytes(made.type->dtype);
    const int64_t values = values_of(first.shape);
    if (recipe.place.change == Change::kTranspose && first.shape.size() == 2)
      return write_transposed(first, width, out);
    if (made.heads > 0 && !(floats && made.type->dtype != DType::kF32))
      return write_paired(first.data.data(), first.shape[0], values / first.shape[0] * width,
                          made.heads, out);
    if (!floats) {
      std::memcpy(out, first.data.data(), first.data.size());
      return;
    }
    const float more = recipe.place.change == Change::kAddOne ? 1.0F : 0.0F;
    for (size_t i = 0; i < recipe.parts.size(); ++i)
      write_floats(recipe.parts[i]->tensor, *made.type, more,
                   out + static_cast<int64_t>(i) * values * 4);
    if (made.heads == 0) return;
    const std::vector<std::byte> before(out, out + values * 4);
    write_paired(before.data(), first.shape[0], values / first.shape[0] * 4, made.heads, out);
  }

  const Config& config_;
  const std::string& source_;
  Tensors out_;
  std::vector<Made> made_;
};

// By the name that they get; those of one layer stand together.
using Recipes = std::map<std::tuple<int64_t, std::string>, Recipe>;

Result<Recipes> plan(const Config& config, const StoredWeights& weights,
                     const std::string& source) {
  Recipes recipes;
  for (const auto& [name, weight] : weights) {
    std::optional<Place> place = place_of(*config.family, name);
    if (!place)
      return error("{}: tensor '{}' has no place in a model of type {}", printable(source),
                   printable(name, 120), config.family->model_type);
    if (place->name.empty()) continue;
    // The hub's engines take the table of the embeddings then, whatever stands here.
    if (place->name == "output.weight" && config.tied) continue;
    Recipe& recipe = recipes[{place->layer, place->name}];
    if (!recipe.parts.empty() && place->head < 0)
      return error("{}: tensors '{}' and '{}' are the same one, {}", printable(source),
                   printable(recipe.first_name, 120), printable(name, 120), place->name);
    // Heads stand in the order of their numbers, names in that of their letters.
    const auto at = std::ranges::upper_bound(recipe.heads, place->head) - recipe.heads.begin();
    recipe.parts.insert(recipe.parts.begin() + at, &weight);
    recipe.heads.insert(recipe.heads.begin() + at, place->head);
    recipe.first_name = name;
    recipe.place = *std::move(place);
  }
  return recipes;
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
  Maker maker(config, source);
  for (const Factors& factors : config.factors) maker.add(factors);
  for (const auto& [key, recipe] : recipes) LS_TRY_VOID(maker.add(recipe));
  return maker.finish();
}

}  // namespace lockstep::hub
