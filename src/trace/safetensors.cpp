#include "trace/safetensors.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "lockstep/detail/json.h"

namespace lockstep::trace {
namespace {

using nlohmann::json;

constexpr StoredType kTypes[] = {
    {"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
    {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
    {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

constexpr size_t kLengthBytes = 8;

// Reads one entry of the header. `data` is everything after the header.
Result<StoredTensor> read_entry(const json& entry, std::span<const std::byte> data) {
  if (!entry.is_object()) return error("expected an object");
  const auto dtype = entry.find("dtype");
  const auto shape = entry.find("shape");
  const auto offsets = entry.find("data_offsets");
  if (dtype == entry.end() || !dtype->is_string()) return error("dtype: expected a string");
  if (shape == entry.end() || !shape->is_array()) return error("shape: expected an array");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned())
    return error("data_offsets: expected two numbers");
  StoredTensor tensor;
  const auto& type_name = dtype->get_ref<const std::string&>();
  tensor.type = find_stored_type(type_name);
  if (tensor.type == nullptr) return error("dtype '{}' is not known", type_name);
  int64_t bytes = tensor.type->size_bytes;
  for (const json& extent : *shape) {
    if (!extent.is_number_unsigned()) return error("shape: expected numbers that are not negative");
    const auto size = extent.get<uint64_t>();
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(bytes, static_cast<int64_t>(size), &bytes))
      return error("shape: the product of its sizes is too large");
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  const auto begin = (*offsets)[0].get<uint64_t>();
  const auto end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > data.size())
    return error("data_offsets [{}, {}] do not lie in the {} bytes of data", begin, end,
                 data.size());
  if (end - begin != static_cast<uint64_t>(bytes))
    return error("data_offsets hold {} bytes; dtype and shape need {}", end - begin, bytes);
  tensor.data = data.subspan(begin, end - begin);
  return tensor;
}

// No byte belongs to two tensors.
Result<void> check_apart(const std::map<std::string, StoredTensor, std::less<>>& tensors,
                         const std::string& path) {
  std::vector<std::pair<const std::byte*, const std::string*>> starts;
  for (const auto& [name, tensor] : tensors)
    if (!tensor.data.empty()) starts.emplace_back(tensor.data.data(), &name);
  std::ranges::stable_sort(starts, {}, &decltype(starts)::value_type::first);
  for (size_t i = 1; i < starts.size(); ++i) {
    const auto before = tensors.find(*starts[i - 1].second)->second.data;
    if (before.data() + before.size() > starts[i].first)
      return error("{}: tensors '{}' and '{}' overlap", path, *starts[i - 1].second,
                   *starts[i].second);
  }
  return {};
}

}  // namespace

const StoredType* find_stored_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &StoredType::name);
  return found != std::end(kTypes) ? found : nullptr;
}

std::string_view stored_name(DType dtype) {
  constexpr std::string_view kNames[] = {"F64", "F32", "F16", "BF16"};
  return kNames[static_cast<int>(dtype)];
}

Result<Safetensors> Safetensors::open(const std::string& path) {
  LS_TRY(MappedFile map, MappedFile::open(path));
  LS_TRY(Safetensors file, parse(map.bytes(), path));
  file.map_.push_back(std::move(map));
  return file;
}

Result<Safetensors> Safetensors::parse(std::span<const std::byte> bytes, const std::string& path) {
  if (bytes.size() < kLengthBytes)
    return error("{}: {} bytes; a safetensors file has at least {}", path, bytes.size(),
                 kLengthBytes);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > kLargestHeader || header_bytes > bytes.size() - kLengthBytes)
    return error("{}: offset 0: the header has {} bytes by its length, {} are left in the file",
                 path, header_bytes, bytes.size() - kLengthBytes);
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  LS_TRY(const json header, parse_json({text, header_bytes}, path + ": header"));
  if (!header.is_object()) return error("{}: the header is no JSON object", path);
  const auto data = bytes.subspan(kLengthBytes + header_bytes);
  Safetensors file;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    Result<StoredTensor> tensor = read_entry(entry, data);
    if (!tensor.ok()) return error("{}: tensor '{}': {}", path, name, tensor.error().message);
    file.tensors_.emplace(name, *std::move(tensor));
  }
  LS_TRY_VOID(check_apart(file.tensors_, path));
  return file;
}

const StoredTensor* Safetensors::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found != tensors_.end() ? &found->second : nullptr;
}

int64_t StoredPlan::size_bytes() const {
  int64_t bytes = lockstep::size_bytes(dtype);
  for (const int64_t extent : shape) bytes *= extent;
  return bytes;
}

std::string safetensors_header(std::span<const StoredPlan> tensors) {
  std::string text = "{";
  int64_t offset = 0;
  for (const StoredPlan& tensor : tensors) {
    const int64_t end = offset + tensor.size_bytes();
    fmt::format_to(std::back_inserter(text),
                   R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                   text.size() == 1 ? "" : ",", detail::json_text(tensor.name),
                   stored_name(tensor.dtype), fmt::join(tensor.shape, ","), offset, end);
    offset = end;
  }
  text += '}';
  // Data starts at a multiple of 8, as the format advises.
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t size = text.size();
  std::string out(kLengthBytes, '\0');
  std::memcpy(out.data(), &size, kLengthBytes);
  return out + text;
}

}  // namespace lockstep::trace
