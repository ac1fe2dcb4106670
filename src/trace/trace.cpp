#include "trace/trace.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/ranges.h>

namespace lockstep::trace {
namespace {

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

void Trace::Row::read(int64_t line, int64_t first, int64_t count, double* out) const {
  const std::byte* place = data + (line * line_stride + first) * size_bytes(dtype);
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
  trace.index_names();
  std::map<std::string, std::vector<size_t>> steps_of;
  for (size_t i = 0; i < trace.manifest_.steps.size(); ++i)
    steps_of[trace.manifest_.steps[i].shard].push_back(i);
  trace.shard_of_.resize(trace.manifest_.steps.size());
  trace.stored_.resize(trace.manifest_.steps.size());
  for (const auto& [name, steps] : steps_of) LS_TRY_VOID(trace.open_shard(name, steps));
  return trace;
}

// Names are kept by the manifest's vector, whose items stay where they are when the trace moves.
void Trace::index_names() {
  index_.clear();
  for (size_t i = 0; i < manifest_.checkpoints.size(); ++i)
    index_.emplace(manifest_.checkpoints[i].name, i);
}

void Trace::rename(const NameMap& map) {
  std::set<std::string> taken;
  for (const CheckpointInfo& info : manifest_.checkpoints) taken.insert(info.name);
  for (CheckpointInfo& info : manifest_.checkpoints) {
    if (is_checkpoint_name(info.name)) continue;
    auto ours = map.checkpoint(info.name, manifest_.model.architecture);
    if (ours && taken.insert(*ours).second) info.name = std::move(*ours);
  }
  index_names();
}

// A few words of a manifest can speak of more rows than anybody can walk over. What it speaks of is
// held against what the shards so far hold, with room for traces that lack much.
Result<void> Trace::check_amount(const std::string& path, const Safetensors& file,
                                 const std::vector<size_t>& steps) {
  constexpr int64_t kAlways = 1 << 21;
  constexpr int64_t kTimes = 16;
  std::unordered_map<std::string, int64_t> tokens;  // by the step's index
  for (const size_t i : steps) {
    rows_told_ += manifest_.steps[i].tokens * std::ssize(manifest_.checkpoints);
    tokens.emplace(std::to_string(manifest_.steps[i].index), manifest_.steps[i].tokens);
  }
  // What no step has as a checkpoint is never walked over.
  for (const auto& [name, tensor] : file.tensors()) {
    const size_t slash = name.find('/');
    const auto step = tokens.find(name.substr(0, slash));
    if (slash == std::string::npos || step == tokens.end() || tensor.data.empty() ||
        tensor.shape.size() < 2 || !index_.contains(std::string_view(name).substr(slash + 1)))
      continue;
    rows_held_ += std::min(step->second, tensor.shape[tensor.shape.size() - 2]);
  }
  if (rows_told_ <= std::max(kAlways, kTimes * rows_held_)) return {};
  return error("{}: the manifest speaks of {} rows up to here, the shards hold {}", path,
               rows_told_, rows_held_);
}

// A shard's header is checked and let go: only where the values lie is kept.
Result<void> Trace::open_shard(const std::string& name, const std::vector<size_t>& steps) {
  const std::string path = (std::filesystem::path(folder_) / name).string();
  LS_TRY(MappedFile map, MappedFile::open(path));
  LS_TRY(const Safetensors file, Safetensors::parse(map.bytes(), path));
  LS_TRY_VOID(check_amount(path, file, steps));
  for (const size_t i : steps) {
    const StepInfo& step = manifest_.steps[i];
    shard_of_[i] = shards_.size();
    bool any = false;
    for (const CheckpointInfo& info : manifest_.checkpoints) {
      Stored& stored = stored_[i].emplace_back();
      const StoredTensor* tensor = file.find(key(step, info.name));
      if (tensor == nullptr) continue;
      any = true;
      if (auto checked = check_value(step, info, *tensor); !checked.ok())
        return error("{}: tensor '{}': {}", path, key(step, info.name), checked.error().message);
      const bool scores = tensor->shape.size() == 3;
      stored = {tensor->data.data(), tensor->shape[scores ? 1 : 0], scores ? tensor->shape[2] : 0};
    }
    if (!any) return error("{}: holds nothing of step {}", path, step.index);
  }
  map.release_pages();  // of the header
  shards_.push_back(std::move(map));
  return {};
}

void Trace::release_pages() const {
  for (const MappedFile& shard : shards_) shard.release_pages();
}

void Trace::release_pages(int64_t first, int64_t last) const {
  const auto& steps = manifest_.steps;
  std::optional<size_t> released;  // steps share shards with their neighbours
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool within =
        steps[i].first_position <= last && steps[i].first_position + steps[i].tokens > first;
    if (!within || released == shard_of_[i]) continue;
    released = shard_of_[i];
    shards_[*released].release_pages();
  }
}

void Trace::read_ahead(int64_t first, int64_t last) const {
  for (size_t i = 0; i < manifest_.steps.size(); ++i) {
    const StepInfo& step = manifest_.steps[i];
    const int64_t end = step.first_position + step.tokens;
    if (step.first_position > last || end <= first) continue;
    // Checkpoints lie side by side, so that of a whole step all rows are one stretch.
    std::span<const std::byte> stretch;
    for (size_t c = 0; c < stored_[i].size(); ++c) {
      const Stored& stored = stored_[i][c];
      const CheckpointInfo& info = manifest_.checkpoints[c];
      if (stored.data == nullptr) continue;
      const int64_t row_bytes =
          info.width * std::max<int64_t>(1, stored.kv) * size_bytes(info.dtype);
      const int64_t skipped = end - stored.rows;  // the position of the first row
      const int64_t from = stored.kv > 0 ? 0 : std::clamp<int64_t>(first - skipped, 0, stored.rows);
      const int64_t to =
          stored.kv > 0 ? stored.rows : std::clamp<int64_t>(last + 1 - skipped, from, stored.rows);
      const std::span<const std::byte> rows(stored.data + from * row_bytes,
                                            static_cast<size_t>((to - from) * row_bytes));
      if (stretch.data() + stretch.size() == rows.data()) {
        stretch = {stretch.data(), stretch.size() + rows.size()};
        continue;
      }
      shards_[shard_of_[i]].read_ahead(stretch);
      stretch = rows;
    }
    shards_[shard_of_[i]].read_ahead(stretch);
  }
}

bool Trace::has(std::string_view checkpoint) const {
  return this->checkpoint(checkpoint) != nullptr;
}

const CheckpointInfo* Trace::checkpoint(std::string_view name) const {
  const auto found = index_.find(name);
  return found != index_.end() ? &manifest_.checkpoints[found->second] : nullptr;
}

const Trace::Stored* Trace::find(size_t step, std::string_view checkpoint) const {
  const auto found = index_.find(checkpoint);
  if (found == index_.end()) return nullptr;
  const Stored& stored = stored_[step][found->second];
  return stored.data != nullptr ? &stored : nullptr;
}

std::optional<View> Trace::value(size_t step, std::string_view checkpoint) const {
  const Stored* stored = find(step, checkpoint);
  if (stored == nullptr) return std::nullopt;
  const CheckpointInfo& info = *this->checkpoint(checkpoint);
  View view{info.dtype, stored->data, {stored->rows, info.width}};
  if (stored->kv > 0) view.shape = {info.width, stored->rows, stored->kv};
  return view;
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
  const Stored* stored = find(*step, checkpoint);
  if (stored == nullptr) return std::nullopt;
  const StepInfo& info = manifest_.steps[*step];
  const CheckpointInfo& what = *this->checkpoint(checkpoint);
  Row row;
  row.dtype = what.dtype;
  const int64_t index = position - info.first_position;
  if (stored->kv > 0) {
    row.lines = what.width;
    row.width = stored->kv;
    row.line_stride = stored->rows * row.width;
    row.data = stored->data + index * row.width * size_bytes(row.dtype);
    return row;
  }
  row.width = what.width;
  const int64_t missing = info.tokens - stored->rows;  // only the last rows are there
  if (index < missing) return std::nullopt;
  row.data = stored->data + (index - missing) * row.width * size_bytes(row.dtype);
  return row;
}

int64_t Trace::positions() const {
  return manifest_.steps.empty()
             ? 0
             : manifest_.steps.back().first_position + manifest_.steps.back().tokens;
}

}  // namespace lockstep::trace
