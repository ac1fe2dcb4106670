#include "trace/trace.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/ranges.h>

namespace lockstep::trace {
namespace {

DType dtype_of(const StoredTensor& tensor) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    if (stored_name(dtype) == tensor.type->name) return dtype;
  LS_CHECK(false, "{} was to be refused on opening", tensor.type->name);
}

std::string key(const StepInfo& step, std::string_view checkpoint) {
  return fmt::format("{}/{}", step.index, checkpoint);
}

// What a shard holds for a step must have the shape that the manifest says.
Result<void> check_value(const StepInfo& step, const CheckpointInfo& info,
                         const StoredTensor& tensor) {
  if (tensor.type->name != stored_name(info.dtype))
    return error("dtype {}, expected {}", tensor.type->name, stored_name(info.dtype));
  const auto& shape = tensor.shape;
  // Logits may have only the last rows; scores are [heads, tokens, positions].
  const bool rows = shape.size() == 2 && shape[1] == info.width && shape[0] >= 1 &&
                    (shape[0] == step.tokens || (info.name == "logits" && shape[0] < step.tokens));
  const bool scores =
      shape.size() == 3 && shape[0] == info.width && shape[1] == step.tokens && shape[2] >= 1;
  if (!rows && !scores)
    return error("shape [{}], expected [{}, {}]", fmt::join(shape, ", "), step.tokens, info.width);
  return {};
}

}  // namespace

double Trace::Row::at(int64_t line, int64_t index) const {
  return load_number(dtype, data + (line * line_stride + index) * size_bytes(dtype));
}

void Trace::Row::read(int64_t line, int64_t count, double* out) const {
  const std::byte* place = data + line * line_stride * size_bytes(dtype);
  // The type is decided once, outside of the loop: rows are long.
  const auto copy = [&](auto constant) {
    constexpr DType kDType = decltype(constant)::value;
    for (int64_t i = 0; i < count; ++i)
      out[i] = load_number(kDType, place + i * size_bytes(kDType));
  };
  switch (dtype) {
    case DType::kF64:
      return copy(std::integral_constant<DType, DType::kF64>());
    case DType::kF32:
      return copy(std::integral_constant<DType, DType::kF32>());
    case DType::kF16:
      return copy(std::integral_constant<DType, DType::kF16>());
    case DType::kBF16:
      return copy(std::integral_constant<DType, DType::kBF16>());
  }
}

Result<Trace> Trace::open(const std::string& folder) {
  namespace fs = std::filesystem;
  Trace trace;
  trace.folder_ = folder;
  const std::string manifest_path = (fs::path(folder) / "manifest.json").string();
  LS_TRY(const MappedFile map, MappedFile::open(manifest_path));
  const auto bytes = map.bytes();
  LS_TRY(
      trace.manifest_,
      parse_manifest({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, manifest_path));
  std::map<std::string, std::shared_ptr<const Safetensors>> opened;
  for (const StepInfo& step : trace.manifest_.steps) {
    const std::string path = (fs::path(folder) / step.shard).string();
    auto& shard = opened[step.shard];
    if (shard == nullptr) {
      LS_TRY(Safetensors file, Safetensors::open(path));
      shard = std::make_shared<const Safetensors>(std::move(file));
    }
    auto& tensors = trace.tensors_.emplace_back();
    for (const CheckpointInfo& info : trace.manifest_.checkpoints) {
      const StoredTensor* tensor = shard->find(key(step, info.name));
      tensors.push_back(tensor);
      if (tensor == nullptr) continue;
      if (auto checked = check_value(step, info, *tensor); !checked.ok())
        return error("{}: tensor '{}': {}", path, key(step, info.name), checked.error().message);
    }
  }
  for (auto& [name, shard] : opened) trace.shards_.push_back(std::move(shard));
  // Names are kept by the manifest's vector, whose items stay where they are when the trace moves.
  for (size_t i = 0; i < trace.manifest_.checkpoints.size(); ++i)
    trace.index_.emplace(trace.manifest_.checkpoints[i].name, i);
  return trace;
}

bool Trace::has(std::string_view checkpoint) const {
  return this->checkpoint(checkpoint) != nullptr;
}

const CheckpointInfo* Trace::checkpoint(std::string_view name) const {
  const auto found = index_.find(name);
  return found != index_.end() ? &manifest_.checkpoints[found->second] : nullptr;
}

const StoredTensor* Trace::find(size_t step, std::string_view checkpoint) const {
  const auto found = index_.find(checkpoint);
  return found != index_.end() ? tensors_[step][found->second] : nullptr;
}

std::optional<exec::View> Trace::value(size_t step, std::string_view checkpoint) const {
  const StoredTensor* tensor = find(step, checkpoint);
  if (tensor == nullptr) return std::nullopt;
  return exec::View{dtype_of(*tensor), tensor->data.data(), tensor->shape};
}

std::optional<size_t> Trace::step_of(int64_t position) const {
  const auto after =
      std::ranges::upper_bound(manifest_.steps, position, {}, &StepInfo::first_position);
  if (after == manifest_.steps.begin()) return std::nullopt;
  const auto step = std::prev(after);
  if (position >= step->first_position + step->tokens) return std::nullopt;
  return static_cast<size_t>(step - manifest_.steps.begin());
}

std::optional<Trace::Row> Trace::row(std::string_view checkpoint, int64_t position) const {
  const auto step = step_of(position);
  if (!step) return std::nullopt;
  const StoredTensor* tensor = find(*step, checkpoint);
  if (tensor == nullptr) return std::nullopt;
  const StepInfo& info = manifest_.steps[*step];
  Row row;
  row.dtype = dtype_of(*tensor);
  const int64_t index = position - info.first_position;
  if (tensor->shape.size() == 3) {
    row.lines = tensor->shape[0];
    row.width = tensor->shape[2];
    row.line_stride = tensor->shape[1] * row.width;
    row.data = tensor->data.data() + index * row.width * size_bytes(row.dtype);
    return row;
  }
  row.width = tensor->shape[1];
  const int64_t missing = info.tokens - tensor->shape[0];  // only the last rows are there
  if (index < missing) return std::nullopt;
  row.data = tensor->data.data() + (index - missing) * row.width * size_bytes(row.dtype);
  return row;
}

int64_t Trace::positions() const {
  return manifest_.steps.empty()
             ? 0
             : manifest_.steps.back().first_position + manifest_.steps.back().tokens;
}

}  // namespace lockstep::trace
