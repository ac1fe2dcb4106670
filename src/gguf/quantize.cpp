#include "gguf/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/ranges.h>

#include "base/parallel.h"
#include "base/text.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace lockstep::gguf {
namespace {

constexpr uint32_t kQuantizationVersion = 2;  // of the block layouts; GGUF files have no other

bool is_quantized(const quant::FormatInfo& format) {
  return format.block_values > 1;
}

quant::ModelShape shape_of(const File& source) {
  quant::ModelShape shape;
  shape.tied_output = source.tensor("output.weight") == nullptr;
  // Files without these (or with a list, one number a layer) still get the plain mix.
  const auto architecture = source.text("general.architecture");
  const std::string prefix = architecture.ok() ? std::string(*architecture) : "";
  const auto number = [&](std::string_view key) -> int64_t {
    const auto found = source.integer(prefix + std::string(key));
    return found.ok() ? *found : 0;
  };
  shape.layers = number(".block_count");
  shape.heads = number(".attention.head_count");
  shape.kv_heads = number(".attention.head_count_kv");
  if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
  shape.experts = number(".expert_count") > 0;
  return shape;
}

// The format that a recipe for single tensors gives one.
Result<const quant::FormatInfo*> listed_format(const Tensor& tensor,
                                               const quant::TensorRecipe& recipe) {
  const quant::FormatInfo* format = recipe.format_of(tensor.name);
  if (format == nullptr)
    return error("{}: no line fits the tensor {}; a first line such as '* Q4_K' fits all",
                 recipe.path(), tensor.name);
  if (tensor.dims[0] % format->block_values != 0)
    return error("{}: {} cannot be {}: its rows have {} values, which is no multiple of {}",
                 recipe.path(), tensor.name, format->name, tensor.dims[0], format->block_values);
  return format;
}

Result<const quant::FormatInfo*> target_of(const Tensor& tensor, const QuantizeOptions& options,
                                           const quant::ModelShape& shape) {
  if (!quant::is_quantized_weight(tensor.name, tensor.dims)) {
    // Norms and biases become F32 from other floats; anything else (whole numbers) stays.
    const bool plain = tensor.format->decodable && !is_quantized(*tensor.format);
    return plain ? &quant::info(quant::Format::kF32) : tensor.format;
  }
  if (options.keep_quantized && is_quantized(*tensor.format)) return tensor.format;
  if (options.tensors != nullptr) return listed_format(tensor, *options.tensors);
  const quant::Format format =
      options.pure ? quant::fit_row(options.recipe->base, tensor.dims[0])
                   : quant::choose_format(*options.recipe, shape, tensor.name, tensor.dims);
  return &quant::info(format);
}

// A line that fits nothing is a mistake: another model's name, or a wrong letter.
Result<void> check_lines(const File& source, const quant::TensorRecipe& recipe) {
  std::vector<std::string_view> names;
  for (const Tensor& tensor : source.tensors())
    if (quant::is_quantized_weight(tensor.name, tensor.dims)) names.push_back(tensor.name);
  if (const auto* line = recipe.unused(names))
    return error("{}: line {}: '{}' fits no matrix of {}", recipe.path(), line->number,
                 printable(line->pattern, 100), source.path());
  return {};
}

// GGUF's number for the format that most values have.
uint32_t most_common_type(const std::vector<TensorPlan>& tensors) {
  std::map<const quant::FormatInfo*, int64_t> values;
  for (const TensorPlan& tensor : tensors) {
    int64_t size = 1;
    for (const int64_t dim : tensor.dims) size *= dim;
    values[tensor.format] += size;
  }
  const auto most = std::ranges::max_element(values, {}, [](const auto& v) { return v.second; });
  for (const quant::Recipe& recipe : quant::all_recipes())
    if (most != values.end() && recipe.base == most->first->format()) return recipe.file_type;
  return quant::find_recipe("F32")->file_type;
}

template <class T>
void set(std::vector<Entry>& metadata, std::string_view key, const T& value) {
  const auto found = std::ranges::find(metadata, key, &Entry::key);
  if (found != metadata.end())
    found->value.value = value;
  else
    metadata.push_back({std::string(key), {value}});
}

// "[3, 17]": where value `index` of a tensor stands.
std::string coordinates(const Tensor& tensor, int64_t index) {
  std::vector<int64_t> place;
  for (const int64_t dim : tensor.dims) {
    place.push_back(index % dim);
    index /= dim;
  }
  return fmt::format("[{}]", fmt::join(place, ", "));
}

// Decodes and encodes a tensor into `out` piece by piece.
class Converter {
 public:
  Converter(const Tensor& tensor, const quant::FormatInfo& target,
            const std::vector<float>& importance)
      : tensor_(tensor), target_(target), importance_(importance) {}

  // Values [first, first + n) into `out`; both are whole blocks.
  Result<void> convert(int64_t first, int64_t n, std::vector<std::byte>& out) {
    out.resize(static_cast<size_t>(quant::size_bytes(target_, n)));
    const int64_t pieces = (n + kPiece - 1) / kPiece;
    std::vector<QuantizeError> errors(static_cast<size_t>(pieces));
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> values(static_cast<size_t>(std::min(kPiece, n)));
      std::vector<float> written(values.size());
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t at = piece * kPiece;
        const int64_t count = std::min(kPiece, n - at);
        std::byte* target = out.data() + quant::size_bytes(target_, at);
        if (!convert_piece(first + at, count, values, target)) continue;
        errors[static_cast<size_t>(piece)] = measure_piece(values, target, count, written);
      }
    });
    // In their order, whatever the number of threads.
    for (const QuantizeError& piece : errors) {
      error_.squares += piece.squares;
      error_.square_errors += piece.square_errors;
    }
    if (first_bad_ == kNone) return {};
    return error("tensor {}: value {} at {} is not finite; a finite number was expected",
                 tensor_.name, first_bad_.load(), coordinates(tensor_, first_bad_));
  }

  const QuantizeError& error_so_far() const { return error_; }

 private:
  static constexpr int64_t kPiece = 1 << 14;  // a multiple of every block
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  // Whether all values are finite.
  bool convert_piece(int64_t first, int64_t n, std::vector<float>& values, std::byte* out) {
    const std::byte* from = tensor_.data.data() + quant::size_bytes(*tensor_.format, first);
    quant::decode(tensor_.format->format(), from, n, values.data());
    const auto bad = std::find_if(values.begin(), values.begin() + n,
                                  [](float value) { return !std::isfinite(value); });
    if (bad != values.begin() + n) {
      const int64_t place = first + (bad - values.begin());
      int64_t known = first_bad_;
      while (place < known && !first_bad_.compare_exchange_weak(known, place)) {
      }
      return false;
    }
    if (&target_ == tensor_.format)
      std::copy_n(from, quant::size_bytes(target_, n), out);
    else
      quant::encode(target_.format(), values.data(), n, out,
                    importance_.empty() ? nullptr : importance_of(first, n).data());
    return true;
  }

  // Of values [first, first + n).
  std::vector<float> importance_of(int64_t first, int64_t n) const {
    const int64_t columns = tensor_.dims[0];
    const bool one = static_cast<int64_t>(importance_.size()) == columns;
    const int64_t matrix = one ? tensor_.values() : columns * tensor_.dims[1];
    std::vector<float> out(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      out[static_cast<size_t>(i)] =
          importance_[static_cast<size_t>((first + i) / matrix * columns + (first + i) % columns)];
    return out;
  }

  QuantizeError measure_piece(const std::vector<float>& values, const std::byte* encoded, int64_t n,
                              std::vector<float>& written) const {
    quant::decode(target_.format(), encoded, n, written.data());
    QuantizeError error;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      const double value = values[i];
      const double difference = written[i] - value;
      error.squares += value * value;
      error.square_errors += difference * difference;
    }
    return error;
  }

  const Tensor& tensor_;
  const quant::FormatInfo& target_;
  const std::vector<float>& importance_;
  std::atomic<int64_t> first_bad_{kNone};
  QuantizeError error_;
};

}  // namespace

Result<QuantizePlan> plan_quantization(const File& source, const QuantizeOptions& options) {
  QuantizePlan plan;
  const quant::ModelShape shape = shape_of(source);
  if (options.tensors != nullptr) LS_TRY_VOID(check_lines(source, *options.tensors));
  for (const Tensor& tensor : source.tensors()) {
    LS_TRY(const quant::FormatInfo* target, target_of(tensor, options, shape));
    if (target != tensor.format && !tensor.format->decodable)
      return error("{}: tensor {} is {}, which cannot be decoded", source.path(), tensor.name,
                   tensor.format->name);
    if (target != tensor.format && is_quantized(*tensor.format) && !options.requantize)
      return error(
          "{}: tensor {} is {} already, and quantizing twice loses more than once; start from an "
          "F32, F16 or BF16 file, or allow it (--requantize)",
          source.path(), tensor.name, tensor.format->name);
    plan.tensors.push_back({tensor.name, target, tensor.dims});
    std::vector<float> importance;
    if (options.imatrix != nullptr && is_quantized(*target)) {
      LS_TRY(importance, options.imatrix->means(tensor.name, tensor.dims));
    }
    plan.importance.push_back(std::move(importance));
  }
  for (const Entry& entry : source.metadata())
    if (!entry.key.starts_with("split.")) plan.metadata.push_back(entry);  // one file comes out
  const bool listed = options.tensors != nullptr;
  set(plan.metadata, "general.file_type",
      listed ? most_common_type(plan.tensors) : options.recipe->file_type);
  set(plan.metadata, "general.quantization_version", kQuantizationVersion);
  if (options.imatrix != nullptr) {
    // As llama.cpp says it.
    const auto used = std::ranges::count_if(plan.importance, [](auto& of) { return !of.empty(); });
    set(plan.metadata, "quantize.imatrix.file", options.imatrix->path());
    set(plan.metadata, "quantize.imatrix.dataset", options.imatrix->dataset);
    set(plan.metadata, "quantize.imatrix.entries_count", static_cast<uint32_t>(used));
  }
  return plan;
}

double QuantizeError::relative() const {
  if (square_errors == 0) return 0;
  if (squares == 0 || !std::isfinite(square_errors)) return std::numeric_limits<double>::infinity();
  return std::sqrt(square_errors / squares);
}

Result<std::vector<QuantizeError>> quantize(const File& source, const QuantizePlan& plan,
                                            const std::string& path,
                                            const std::function<void(int64_t)>& advance) {
  constexpr int64_t kChunk = 1 << 22;  // values; at most 16 MiB of output in memory
  LS_TRY(Writer writer, Writer::create(path, plan.metadata, plan.tensors));
  std::vector<std::byte> out;
  std::vector<QuantizeError> errors(plan.tensors.size());
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const Tensor& tensor = source.tensors()[i];
    const quant::FormatInfo& target = *plan.tensors[i].format;
    if (!tensor.format->decodable) {  // kept as it is
      LS_TRY_VOID(writer.write(tensor.data));
      advance(static_cast<int64_t>(tensor.data.size()));
      continue;
    }
    Converter converter(tensor, target, plan.importance[i]);
    const int64_t values = tensor.values();
    for (int64_t first = 0; first < values; first += kChunk) {
      const int64_t n = std::min(kChunk, values - first);
      if (auto done = converter.convert(first, n, out); !done.ok())
        return error("{}: {}", source.path(), done.error().message);
      LS_TRY_VOID(writer.write(out));
      advance(quant::size_bytes(*tensor.format, n));
    }
    errors[i] = converter.error_so_far();
  }
  LS_TRY_VOID(writer.finish());
  return errors;
}

}  // namespace lockstep::gguf
