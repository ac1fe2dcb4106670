#include "gguf/writer.h"

#include <algorithm>
#include <set>

#include "base/output_file.h"
#include "base/text.h"
#include "gguf/parse.h"

namespace lockstep::gguf {
namespace {

struct PlannedTensor {
  std::string name;
  int64_t bytes = 0;
  int64_t offset = 0;  // from the start of the data
};

Result<void> check_name(const std::string& path, std::string_view what, std::string_view name,
                        std::set<std::string_view>& seen) {
  if (find_invalid_utf8(name) != std::string_view::npos)
    return error("{}: {} '{}': found invalid UTF-8, expected valid", printable(path), what,
                 printable(name, 80));
  if (!seen.insert(name).second)
    return error("{}: {} '{}': found it twice, expected unique names", printable(path), what,
                 printable(name, 80));
  return {};
}

int depth_of(const Array& array) {
  int deepest = 0;
  if (const auto* inner = std::get_if<std::vector<Array>>(&array.items))
    for (const Array& item : *inner) deepest = std::max(deepest, depth_of(item));
  return deepest + 1;
}

Result<int64_t> check_metadata(const std::string& path, std::span<const Entry> metadata) {
  int64_t alignment = kDefaultAlignment;
  std::set<std::string_view> keys;
  for (const Entry& entry : metadata) {
    LS_TRY_VOID(check_name(path, "metadata", entry.key, keys));
    const auto* array = std::get_if<Array>(&entry.value.value);
    if (array != nullptr && depth_of(*array) > kMaxDepth)
      return error("{}: metadata '{}': found arrays nested more deeply, expected at most {} levels",
                   printable(path), printable(entry.key, 80), kMaxDepth);
    if (entry.key != "general.alignment") continue;
    const auto* asked = std::get_if<uint32_t>(&entry.value.value);
    if (asked == nullptr || !valid_alignment(*asked))
      return error(
          "{}: metadata 'general.alignment': found {} {}, expected a u32 that is a power of two or "
          "a multiple of 8",
          printable(path), type_name(entry.value), preview(entry.value, 4, 40));
    alignment = *asked;
  }
  return alignment;
}

Result<std::vector<PlannedTensor>> check_tensors(const std::string& path, int64_t alignment,
                                                 std::span<const TensorPlan> tensors) {
  std::vector<PlannedTensor> plan;
  std::set<std::string_view> names;
  int64_t offset = 0;
  for (const TensorPlan& tensor : tensors) {
    LS_CHECK(tensor.format != nullptr, "tensor '{}' has no format", tensor.name);
    LS_TRY_VOID(check_name(path, "tensor", tensor.name, names));
    const TensorSize size = tensor_size(*tensor.format, tensor.dims);
    if (!size.found.empty())
      return error("{}: tensor '{}': {}: found {}, expected {}", printable(path),
                   printable(tensor.name, 80),
                   size.bad_dim >= 0 ? fmt::format("dimension {}", size.bad_dim) : "shape",
                   size.found, size.expected);
    plan.push_back({tensor.name, size.bytes, offset});
    int64_t end = 0;
    if (__builtin_add_overflow(offset, size.bytes, &end) || end > INT64_MAX - 2 * alignment)
      return error("{}: tensor '{}': found more than 2^63 bytes of data in all, expected fewer",
                   printable(path), printable(tensor.name, 80));
    offset = align_up(end, alignment);
  }
  return plan;
}

template <class T>
void append_number(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string header(int64_t alignment, std::span<const Entry> metadata,
                   std::span<const TensorPlan> tensors, const std::vector<PlannedTensor>& plan) {
  std::string out(kMagic, sizeof kMagic);
  append_number(out, kVersion);
  append_number(out, static_cast<uint64_t>(tensors.size()));
  append_number(out, static_cast<uint64_t>(metadata.size()));
  for (const Entry& entry : metadata) {
    append_text(out, entry.key);
    append_value(out, entry.value);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    append_text(out, tensors[i].name);
    append_number(out, static_cast<uint32_t>(tensors[i].dims.size()));
    for (const int64_t dim : tensors[i].dims) append_number(out, dim);
    append_number(out, tensors[i].format->id);
    append_number(out, plan[i].offset);
  }
  if (!tensors.empty())
    out.resize(static_cast<size_t>(align_up(static_cast<int64_t>(out.size()), alignment)));
  return out;
}

}  // namespace

std::string file_without_tensors(std::span<const Entry> metadata) {
  return header(kDefaultAlignment, metadata, {}, {});
}

struct Writer::State {
  OutputFile output;
  int64_t alignment = kDefaultAlignment;
  std::vector<PlannedTensor> plan;
  size_t current = 0;   // in `plan`; its size when all are written
  int64_t written = 0;  // bytes of the current one
};

Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

Result<Writer> Writer::create(const std::string& path, std::span<const Entry> metadata,
                              std::span<const TensorPlan> tensors) {
  LS_TRY(const int64_t alignment, check_metadata(path, metadata));
  LS_TRY(auto plan, check_tensors(path, alignment, tensors));
  const std::string start = header(alignment, metadata, tensors, plan);
  const int64_t data_bytes =
      plan.empty() ? 0 : align_up(plan.back().offset + plan.back().bytes, alignment);
  LS_TRY(OutputFile output, OutputFile::create(path));
  LS_TRY_VOID(output.reserve(static_cast<int64_t>(start.size()) + data_bytes));
  LS_TRY_VOID(output.write(std::as_bytes(std::span(start))));
  return Writer(
      std::make_unique<State>(State{std::move(output), alignment, std::move(plan), 0, 0}));
}

Result<void> Writer::write(std::span<const std::byte> bytes) {
  State& s = *state_;
  if (bytes.empty()) return {};
  if (s.current == s.plan.size())
    return error("{}: found {} bytes more, expected none after the last tensor",
                 printable(s.output.path()), bytes.size());
  const PlannedTensor& tensor = s.plan[s.current];
  if (static_cast<int64_t>(bytes.size()) > tensor.bytes - s.written)
    return error("{}: tensor '{}': found {} bytes of data, expected {}", printable(s.output.path()),
                 printable(tensor.name, 80), s.written + static_cast<int64_t>(bytes.size()),
                 tensor.bytes);
  LS_TRY_VOID(s.output.write(bytes));
  s.written += static_cast<int64_t>(bytes.size());
  if (s.written < tensor.bytes) return {};
  // Padding follows the last tensor too, which some readers ask for.
  const int64_t padding = align_up(tensor.bytes, s.alignment) - tensor.bytes;
  ++s.current;
  s.written = 0;
  return s.output.write_zeros(padding);
}

Result<void> Writer::finish() {
  State& s = *state_;
  if (s.current < s.plan.size())
    return error("{}: tensor '{}': found {} bytes of data, expected {}", printable(s.output.path()),
                 printable(s.plan[s.current].name, 80), s.written, s.plan[s.current].bytes);
  return s.output.finish();
}

}  // namespace lockstep::gguf
