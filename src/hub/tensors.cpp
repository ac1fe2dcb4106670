#include "hub/tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
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

// Eight bits: a sign, four of the exponent, three of the fraction; no infinity.
constexpr std::string_view kEightBits = "F8_E4M3";
constexpr std::string_view kScales = "_scale_inv";

bool is_eight_bits(const StoredTensor& tensor) {
  return tensor.type->name == kEightBits;
}

// A tensor to be, of one of the hub or of several.
struct Recipe {
  std::vector<const StoredWeight*> parts;
  std::vector<const StoredWeight*> scales;  // of each part; null where it has none
  std::vector<int64_t> indexes;             // of the parts, where each is a head's or an expert's
  Place place;
  std::string first_name;  // on the hub, for messages
};

int64_t values_of(std::span<const int64_t> shape) {
  int64_t values = 1;
  for (const int64_t extent : shape) values *= extent;  // the reader has checked the product
  return values;
}

// The numbers of one part, as they are stored or as floats.
struct PartNumbers {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<float> made = {};
};

float float_of_eight_bits(uint8_t bits) {
  const int exponent = bits >> 3U & 15U;
  const auto fraction = static_cast<float>(bits & 7U);
  if ((bits & 0x7fU) == 0x7fU) return std::numeric_limits<float>::quiet_NaN();
  const float size =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (bits & 0x80U) != 0 ? -size : size;
}

// Each block of a matrix times its scale.
std::vector<float> scaled_floats(const StoredTensor& from, const StoredTensor& scales,
                                 int64_t block_rows, int64_t block_columns) {
  std::array<float, 256> values;
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = float_of_eight_bits(static_cast<uint8_t>(i));
  const DType dtype = number_type(scales)->dtype;
  const int64_t rows = from.shape[0], columns = from.shape[1], across = scales.shape[1];
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t block = r / block_rows * across + c / block_columns;
      const auto scale =
          static_cast<float>(load_number(dtype, scales.data.data() + block * size_bytes(dtype)));
      const auto at = static_cast<size_t>(r * columns + c);
      out[at] = values[static_cast<uint8_t>(from.data[at])] * scale;
    }
  return out;
}

// As F32, as GGUF files have what is added and what norms multiply with.
void make_floats(PartNumbers& numbers, int64_t count, float more) {
  if (numbers.dtype == DType::kF32 && more == 0) return;
  std::vector<float> floats(static_cast<size_t>(count));
  const int64_t width = size_bytes(numbers.dtype);
  for (int64_t i = 0; i < count; ++i)
    floats[static_cast<size_t>(i)] =
        static_cast<float>(load_number(numbers.dtype, numbers.data + i * width)) + more;
  numbers.made = std::move(floats);
  numbers.data = reinterpret_cast<const std::byte*>(numbers.made.data());
  numbers.dtype = DType::kF32;
}

void write_transposed(const std::byte* from, int64_t rows, int64_t columns, int64_t width,
                      std::byte* out) {
  constexpr int64_t kTile = 64;  // numbers: both sides stay in the cache
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < columns; c0 += kTile)
      for (int64_t c = c0; c < std::min(c0 + kTile, columns); ++c)
        for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r)
          std::memcpy(out + (c * rows + r) * width, from + (r * columns + c) * width,
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

// Of each matrix the upper or the lower half of its rows.
void write_halves(const std::byte* from, int64_t matrices, int64_t matrix_bytes, bool second,
                  std::byte* out) {
  const int64_t half = matrix_bytes / 2;
  for (int64_t i = 0; i < matrices; ++i)
    std::memcpy(out + i * half, from + i * matrix_bytes + (second ? half : 0),
                static_cast<size_t>(half));
}

bool is_half(Change change) {
  return change == Change::kFirstHalf || change == Change::kSecondHalf;
}

// What GGUF files have as floats whatever the others are.
bool is_kept_exact(const gguf::Tensor& tensor) {
  return tensor.dims.size() == 1 || tensor.name.ends_with("_norm.weight") ||
         tensor.name.ends_with("ffn_gate_inp.weight");
}

class Maker {
 public:
  Maker(const Config& config, const std::string& source) : config_(config), source_(source) {}

  Result<void> add(const Recipe& recipe) {
    const StoredTensor& first = recipe.parts[0]->tensor;
    const Change change = recipe.place.change;
    LS_TRY(const NumberType* type, type_of(recipe));
    gguf::Tensor tensor;
    tensor.name = recipe.place.name;
    tensor.dims.assign(first.shape.rbegin(), first.shape.rend());
    if (tensor.dims.empty() || std::ranges::find(tensor.dims, 0) != tensor.dims.end())
      return fail(recipe,
                  fmt::format("found shape [{}], expected numbers", fmt::join(first.shape, ", ")));
    if (recipe.place.head >= 0) LS_TRY_VOID(check_heads(recipe));
    if (recipe.place.expert >= 0) LS_TRY_VOID(check_experts(recipe));
    if (is_half(change)) {
      if (tensor.dims.size() < 2 || tensor.dims[1] % 2 != 0)
        return fail(recipe, fmt::format("found shape [{}], expected an even number of rows: two "
                                        "matrices in one",
                                        fmt::join(first.shape, ", ")));
      tensor.dims[1] /= 2;
    }
    if (recipe.place.head >= 0 || recipe.place.expert >= 0)
      tensor.dims.push_back(static_cast<int64_t>(recipe.parts.size()));
    LS_TRY(const int64_t heads, heads_of(recipe, first));
    const bool transposed = change == Change::kTranspose && tensor.dims.size() == 2;
    if (transposed) std::swap(tensor.dims[0], tensor.dims[1]);
    // One row is a vector.
    if (tensor.name.ends_with("_inp_shexp.weight") && tensor.dims.size() == 2 &&
        tensor.dims[1] == 1)
      tensor.dims.pop_back();

    const bool floats = is_kept_exact(tensor);
    tensor.format = &quant::info(floats ? quant::Format::kF32 : type->format);
    const bool aligned = reinterpret_cast<uintptr_t>(first.data.data()) %
                             static_cast<uintptr_t>(size_bytes(type->dtype)) ==
                         0;
    const bool same = change == Change::kNone && recipe.place.head < 0 && recipe.place.expert < 0 &&
                      !is_eight_bits(first) && aligned && (!floats || type->dtype == DType::kF32);
    if (same) {
      tensor.data = first.data;
      tensor.file_offset = recipe.parts[0]->file_offset;
    } else {
      tensor.made = true;
      made_.push_back({out_.tensors.size(), &recipe, heads});
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
    int64_t heads;  // whose rows are paired; 0: they stay
  };

  static int64_t bytes_of(const gguf::Tensor& tensor) {
    return quant::size_bytes(*tensor.format, tensor.values());
  }

  Error fail(const Recipe& recipe, const std::string& what) const {
    return error("{}: tensor '{}': {}", printable(source_), printable(recipe.first_name, 120),
                 what);
  }

  // What the numbers are, or become: of eight bits, floats.
  Result<const NumberType*> type_of(const Recipe& recipe) const {
    const StoredTensor& first = recipe.parts[0]->tensor;
    for (size_t i = 0; i < recipe.parts.size(); ++i)
      if (is_eight_bits(recipe.parts[i]->tensor)) LS_TRY_VOID(check_scales(recipe, i));
    if (is_eight_bits(first)) return &kNumberTypes[0];
    const NumberType* type = number_type(first);
    if (type == nullptr)
      return fail(recipe, fmt::format("found numbers of type {}, expected F32, F16, BF16 or {}",
                                      first.type->name, kEightBits));
    return type;
  }

  Result<void> check_scales(const Recipe& recipe, size_t part) const {
    const StoredTensor& tensor = recipe.parts[part]->tensor;
    if (config_.block_rows == 0)
      return fail(recipe, fmt::format("found numbers of type {}, expected weight_block_size in the "
                                      "quantization_config of config.json for these",
                                      kEightBits));
    if (recipe.scales[part] == nullptr)
      return fail(recipe, fmt::format("found no '{}{}', expected one for numbers of type {}",
                                      recipe.first_name, kScales, kEightBits));
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
    const StoredTensor& first = recipe.parts[0]->tensor;
    const Change change = recipe.place.change;
    const int64_t values = values_of(first.shape);
    for (size_t part = 0; part < recipe.parts.size(); ++part) {
      PartNumbers numbers = numbers_of(recipe, part);
      if (is_kept_exact(out_.tensors[made.index]))
        make_floats(numbers, values, change == Change::kAddOne ? 1.0F : 0.0F);
      const int64_t width = size_bytes(numbers.dtype);
      if (change == Change::kTranspose && first.shape.size() == 2) {
        write_transposed(numbers.data, first.shape[0], first.shape[1], width, out);
      } else if (made.heads > 0) {
        write_paired(numbers.data, first.shape[0], values / first.shape[0] * width, made.heads,
                     out);
      } else if (is_half(change)) {
        const size_t dimensions = first.shape.size();
        const int64_t matrix = first.shape[dimensions - 2] * first.shape[dimensions - 1];
        write_halves(numbers.data, values / matrix, matrix * width, change == Change::kSecondHalf,
                     out);
      } else {
        std::memcpy(out, numbers.data, static_cast<size_t>(values * width));
      }
      out += (is_half(change) ? values / 2 : values) * width;
    }
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
    // Scales belong to the weight before them.
    if (name.ends_with(kScales) && weights.contains(name.substr(0, name.size() - kScales.size())))
      continue;
    std::vector<Place> places = places_of(*config.family, name);
    if (places.empty())
      return error("{}: tensor '{}' has no place in a model of type {}", printable(source),
                   printable(name, 120), config.family->model_type);
    const auto scale = weights.find(name + std::string(kScales));
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
