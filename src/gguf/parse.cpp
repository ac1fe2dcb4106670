#include "gguf/parse.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/text.h"
#include "gguf/cursor.h"
#include "gguf/parse_value.h"

namespace lockstep::gguf {
namespace {

// The fewest bytes that an entry can take: they bound the counts in the header.
constexpr int64_t kMinEntryBytes = 8 + 4 + 1;           // key length, type, a one-byte value
constexpr int64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;  // name length, dims, one dim, type, offset

// Where the offset field of each tensor stands and what it says, for the checks that need all.
struct Placement {
  int64_t field_at;
  uint64_t offset;  // from the start of the data
  int64_t bytes;
};

// What a file that is no GGUF file probably is.
std::string_view guess(std::string_view start) {
  if (start.starts_with("version https://git-lfs"))
    return " (a Git LFS pointer: fetch the file itself with 'git lfs pull')";
  if (start.starts_with("<")) return " (a web page: the download went wrong)";
  if (start.starts_with("PK")) return " (a zip archive, perhaps a PyTorch model)";
  if (start.starts_with("tjgg") || start.starts_with("lmgg") || start.starts_with("fmgg"))
    return " (a GGML file from before GGUF: convert the model again)";
  if (start.size() > 8 && start[8] == '{') return " (perhaps a safetensors file)";
  if (start.find_first_not_of('\0') == std::string_view::npos)
    return " (zeros: the download went wrong)";
  return "";
}

Result<uint32_t> read_version(Cursor& cursor, std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 64));
  LS_TRY(const auto magic_bytes, cursor.take(sizeof kMagic, {"magic"}));
  const std::string_view magic(reinterpret_cast<const char*>(magic_bytes.data()), sizeof kMagic);
  if (magic == "FUGG")
    return cursor.fail(0, {"magic"}, "\"FUGG\"",
                       "\"GGUF\": the file is big-endian, which is not supported");
  if (magic != std::string_view(kMagic, sizeof kMagic))
    return cursor.fail(0, {"magic"}, fmt::format("\"{}\"{}", printable(magic), guess(start)),
                       "\"GGUF\"");
  LS_TRY(const auto version, cursor.read<uint32_t>({"version"}));
  if (version == 2 || version == 3) return version;
  const auto fail = [&](std::string_view expected) {
    return cursor.fail(4, {"version"}, fmt::format("{}", version), expected);
  };
  if (version != 0 && (version & 0xffffu) == 0)
    return fail("2 or 3: the file is big-endian, which is not supported");
  if (version == 1) return fail("2 or 3: convert the model again, version 1 is long obsolete");
  if (version > kVersion) return fail("2 or 3: the file is newer than this program");
  return fail("2 or 3");
}

Result<std::string_view> read_name(Cursor& cursor, const Field& length, std::string_view what) {
  LS_TRY(const std::string_view name, cursor.read_text(length));
  const size_t invalid = find_invalid_utf8(name);
  if (invalid == std::string_view::npos) return name;
  const auto start = cursor.offset() - static_cast<int64_t>(name.size());
  return cursor.fail(start + static_cast<int64_t>(invalid), {what, length.index},
                     fmt::format("\"{}\"", printable(name, 80)), "valid UTF-8");
}

Result<int64_t> checked_alignment(const Cursor& cursor, int64_t at, const Value& value) {
  const auto* alignment = std::get_if<uint32_t>(&value.value);
  if (alignment != nullptr && valid_alignment(*alignment)) return *alignment;
  return cursor.fail(at, {"metadata value", -1, "general.alignment"},
                     fmt::format("{} {}", type_name(value), preview(value, 4, 40)),
                     "a u32 that is a power of two or a multiple of 8");
}

Result<void> read_metadata(Cursor& cursor, int64_t count, Contents& contents) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = cursor.offset();
    LS_TRY(const std::string_view key,
           read_name(cursor, {"length of metadata key", i}, "metadata key"));
    if (!contents.metadata_index.emplace(key, contents.metadata.size()).second)
      return cursor.fail(at, {"metadata key", i},
                         fmt::format("'{}' a second time", printable(key, 80)), "unique keys");
    const int64_t value_at = cursor.offset();
    LS_TRY(Value value, read_value(cursor, key));
    if (key == "general.alignment") {
      LS_TRY(contents.alignment, checked_alignment(cursor, value_at, value));
    }
    contents.metadata.push_back({std::string(key), std::move(value)});
  }
  return {};
}

Result<Tensor> read_tensor(Cursor& cursor, std::string_view name, Placement& placement) {
  Tensor tensor;
  tensor.name = name;
  const int64_t dims_at = cursor.offset();
  LS_TRY(const auto n_dims, cursor.read<uint32_t>({"number of dimensions", -1, name}));
  if (n_dims < 1 || n_dims > kMaxDims)
    return cursor.fail(dims_at, {"number of dimensions", -1, name}, fmt::format("{}", n_dims),
                       fmt::format("1 to {}", kMaxDims));
  const int64_t first_dim_at = cursor.offset();
  for (int64_t d = 0; d < n_dims; ++d) {
    const Field field{"dimension", d, name};
    LS_TRY(const auto dim, cursor.read<uint64_t>(field));
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return cursor.fail(first_dim_at + 8 * d, field, fmt::format("{}", dim), "less than 2^63");
    tensor.dims.push_back(static_cast<int64_t>(dim));
  }
  const int64_t type_at = cursor.offset();
  LS_TRY(const auto type, cursor.read<uint32_t>({"tensor type", -1, name}));
  tensor.format = quant::find_format(type);
  if (tensor.format == nullptr)
    return cursor.fail(
        type_at, {"tensor type", -1, name}, fmt::format("{}", type),
        fmt::format("a known type (the last one is {})", quant::all_formats().back().id));
  const TensorSize size = tensor_size(*tensor.format, tensor.dims);
  if (!size.found.empty())
    return cursor.fail(first_dim_at + 8 * std::max<int64_t>(size.bad_dim, 0),
                       {size.bad_dim >= 0 ? "dimension" : "shape", size.bad_dim, name}, size.found,
                       size.expected);
  placement.bytes = size.bytes;
  placement.field_at = cursor.offset();
  LS_TRY(placement.offset, cursor.read<uint64_t>({"data offset", -1, name}));
  return tensor;
}

Result<void> read_tensors(Cursor& cursor, int64_t count, Contents& contents,
                          std::vector<Placement>& placements) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = cursor.offset();
    LS_TRY(const std::string_view name,
           read_name(cursor, {"length of the name of tensor", i}, "name of tensor"));
    if (!contents.tensor_index.emplace(name, contents.tensors.size()).second)
      return cursor.fail(at, {"name of tensor", i},
                         fmt::format("'{}' a second time", printable(name, 80)), "unique names");
    LS_TRY(Tensor tensor, read_tensor(cursor, name, placements.emplace_back()));
    contents.tensors.push_back(std::move(tensor));
  }
  return {};
}

// Offsets, against each other and the size of the file; sets where the data is.
Result<void> place_tensors(const Cursor& cursor, std::span<const std::byte> bytes,
                           const std::vector<Placement>& placements, Contents& contents) {
  if (placements.empty()) return {};
  const int64_t data_at = align_up(cursor.offset(), contents.alignment);
  // In 128 bits nothing overflows: offsets are below 2^64 and sizes below 2^63.
  const auto end_of = [&](const Placement& p) {
    return static_cast<unsigned __int128>(p.offset) + static_cast<uint64_t>(p.bytes) +
           static_cast<uint64_t>(data_at);
  };
  unsigned __int128 end = 0;
  for (const Placement& p : placements) end = std::max(end, end_of(p));
  for (size_t i = 0; i < placements.size(); ++i) {
    const Placement& p = placements[i];
    Tensor& tensor = contents.tensors[i];
    const Field field{"data offset", -1, tensor.name};
    if (p.offset % static_cast<uint64_t>(contents.alignment) != 0)
      return cursor.fail(p.field_at, field, fmt::format("{}", p.offset),
                         fmt::format("a multiple of the alignment, {}", contents.alignment));
    if (end_of(p) > bytes.size())
      return cursor.fail(
          p.field_at, field, fmt::format("{}, {} bytes of data from there", p.offset, p.bytes),
          fmt::format("an end within the file: it has {} bytes, and {} more are missing (is it "
                      "truncated?)",
                      bytes.size(), end - bytes.size()));
    tensor.file_offset = data_at + static_cast<int64_t>(p.offset);
    tensor.data =
        bytes.subspan(static_cast<size_t>(tensor.file_offset), static_cast<size_t>(p.bytes));
  }
  std::vector<size_t> order(placements.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t i) { return placements[i].offset; });
  for (size_t k = 1; k < order.size(); ++k) {
    const Placement& before = placements[order[k - 1]];
    const Placement& p = placements[order[k]];
    const uint64_t before_end = before.offset + static_cast<uint64_t>(before.bytes);
    if (p.offset < before_end)
      return cursor.fail(
          p.field_at, {"data offset", -1, contents.tensors[order[k]].name},
          fmt::format("{}", p.offset),
          fmt::format("at least {}, the end of '{}': tensors must not overlap", before_end,
                      printable(contents.tensors[order[k - 1]].name, 80)));
  }
  return {};
}

}  // namespace

bool valid_alignment(int64_t alignment) {
  return alignment > 0 &&
         (alignment % 8 == 0 || std::has_single_bit(static_cast<uint64_t>(alignment)));
}

int64_t align_up(int64_t offset, int64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

TensorSize tensor_size(const quant::FormatInfo& format, std::span<const int64_t> dims) {
  TensorSize size;
  const auto problem = [&](int64_t dim, std::string found, std::string expected) {
    size.bad_dim = dim;
    size.found = std::move(found);
    size.expected = std::move(expected);
    return size;
  };
  if (dims.empty() || static_cast<int64_t>(dims.size()) > kMaxDims)
    return problem(-1, fmt::format("{} dimensions", dims.size()), fmt::format("1 to {}", kMaxDims));
  int64_t values = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < 1)
      return problem(static_cast<int64_t>(d), fmt::format("{}", dims[d]), "1 or more");
    if (__builtin_mul_overflow(values, dims[d], &values))
      return problem(-1, fmt::format("[{}]", fmt::join(dims, ", ")), "fewer than 2^63 values");
  }
  if (dims[0] % format.block_values != 0)
    return problem(
        0, fmt::format("{}", dims[0]),
        fmt::format("a multiple of {}, the block of {}", format.block_values, format.name));
  if (__builtin_mul_overflow(values / format.block_values, format.block_bytes, &size.bytes))
    return problem(-1, fmt::format("[{}]", fmt::join(dims, ", ")), "fewer than 2^63 bytes");
  return size;
}

Result<Contents> parse_contents(std::span<const std::byte> bytes, const std::string& path) {
  Contents contents;
  Cursor cursor(bytes, path);
  LS_TRY(contents.version, read_version(cursor, bytes));
  LS_TRY(const int64_t n_tensors, cursor.read_count({"number of tensors"}, kMinTensorBytes));
  LS_TRY(const int64_t n_entries,
         cursor.read_count({"number of metadata entries"}, kMinEntryBytes));
  LS_TRY_VOID(read_metadata(cursor, n_entries, contents));
  std::vector<Placement> placements;
  LS_TRY_VOID(read_tensors(cursor, n_tensors, contents, placements));
  LS_TRY_VOID(place_tensors(cursor, bytes, placements, contents));
  return contents;
}

}  // namespace lockstep::gguf
