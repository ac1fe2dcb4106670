#include "gguf/file.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "gguf/parse.h"
#include "gguf/split.h"

namespace lockstep::gguf {

struct File::State {
  std::string path;
  std::vector<MappedFile> maps;
  std::vector<AlignedVector<std::byte>> memory;
  std::vector<Part> parts;
  int64_t size_bytes = 0;
  Contents contents;

  void add_map(MappedFile map) {
    const auto size = static_cast<int64_t>(map.bytes().size());
    parts.push_back({map.path(), size, map.stamp()});
    size_bytes += size;
    maps.push_back(std::move(map));
  }

  // Takes the tensors of another part of a split model over.
  Result<void> merge(Contents part, const std::string& part_path) {
    for (const auto& [name, index] : part.tensor_index) {
      if (!contents.tensor_index.emplace(name, contents.tensors.size() + index).second)
        return error("{}: found tensor '{}', expected names that no earlier part has",
                     printable(part_path), printable(name, 80));
    }
    for (Tensor& tensor : part.tensors) contents.tensors.push_back(std::move(tensor));
    return {};
  }
};

int64_t Tensor::values() const {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

std::string Tensor::shape() const {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

File::File(std::unique_ptr<State> state) : state_(std::move(state)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

void File::release_pages() const {
  for (const MappedFile& map : state_->maps) map.release_pages();
}

Result<File> File::parse(std::span<const std::byte> bytes, const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->size_bytes = static_cast<int64_t>(bytes.size());
  LS_TRY(state->contents, parse_contents(bytes, path));
  return File(std::move(state));
}

Result<File> File::assemble(Assembly parts) {
  auto state = std::make_unique<State>();
  state->path = std::move(parts.path);
  state->memory = std::move(parts.memory);
  for (MappedFile& file : parts.files) state->add_map(std::move(file));
  Contents& contents = state->contents;
  contents.metadata = std::move(parts.metadata);
  contents.tensors = std::move(parts.tensors);
  for (size_t i = 0; i < contents.metadata.size(); ++i) {
    const std::string& key = contents.metadata[i].key;
    if (!contents.metadata_index.emplace(key, i).second)
      return error("{}: found metadata '{}' a second time, expected unique keys",
                   printable(state->path), printable(key, 80));
  }
  for (size_t i = 0; i < contents.tensors.size(); ++i) {
    const Tensor& tensor = contents.tensors[i];
    if (!contents.tensor_index.emplace(tensor.name, i).second)
      return error("{}: found tensor '{}' a second time, expected unique names",
                   printable(state->path), printable(tensor.name, 80));
    const TensorSize size = tensor_size(*tensor.format, tensor.dims);
    if (!size.found.empty())
      return error("{}: tensor '{}': found {}, expected {}", printable(state->path),
                   printable(tensor.name, 80), size.found, size.expected);
    if (static_cast<int64_t>(tensor.data.size()) != size.bytes)
      return error("{}: tensor '{}': found {} bytes of data, expected {}", printable(state->path),
                   printable(tensor.name, 80), tensor.data.size(), size.bytes);
  }
  return File(std::move(state));
}

bool File::is_mapped() const {
  return !state_->maps.empty() && state_->maps.front().is_map();
}

Result<void> File::check_unchanged() const {
  for (const MappedFile& map : state_->maps) LS_TRY_VOID(map.check_unchanged());
  return {};
}

bool File::cut() const {
  return std::ranges::any_of(state_->maps, [](const MappedFile& map) { return map.cut(); });
}

Result<File> File::open(const std::string& path) {
  return open(path, true);
}

Result<File> File::read(const std::string& path) {
  return open(path, false);
}

Result<File> File::open(const std::string& path, bool map_it) {
  const auto take = map_it ? MappedFile::open : MappedFile::read;
  auto state = std::make_unique<State>();
  state->path = path;
  LS_TRY(MappedFile first, take(path));
  LS_TRY(state->contents, parse_contents(first.bytes(), path));
  state->add_map(std::move(first));
  File file(std::move(state));
  LS_TRY(const Split split, read_split(file));
  if (split.count <= 1) return file;

  LS_TRY(const auto paths, split_paths(path, split));
  for (int64_t i = 1; i < split.count; ++i) {
    const std::string& part_path = paths[static_cast<size_t>(i)];
    LS_TRY(MappedFile map, take(part_path));
    LS_TRY(File part, parse(map.bytes(), part_path));
    LS_TRY_VOID(check_part(part, i, split));
    LS_TRY_VOID(file.state_->merge(std::move(part.state_->contents), part_path));
    file.state_->add_map(std::move(map));
  }
  LS_TRY_VOID(check_total(file, split));
  return file;
}

const std::string& File::path() const {
  return state_->path;
}
uint32_t File::version() const {
  return state_->contents.version;
}
int64_t File::alignment() const {
  return state_->contents.alignment;
}
int64_t File::size_bytes() const {
  return state_->size_bytes;
}
std::span<const Part> File::parts() const {
  return state_->parts;
}
std::span<const Entry> File::metadata() const {
  return state_->contents.metadata;
}
std::span<const Tensor> File::tensors() const {
  return state_->contents.tensors;
}

const Value* File::find(std::string_view key) const {
  const Contents& contents = state_->contents;
  const auto found = contents.metadata_index.find(key);
  return found != contents.metadata_index.end() ? &contents.metadata[found->second].value : nullptr;
}

const Tensor* File::tensor(std::string_view name) const {
  const Contents& contents = state_->contents;
  const auto found = contents.tensor_index.find(name);
  return found != contents.tensor_index.end() ? &contents.tensors[found->second] : nullptr;
}

}  // namespace lockstep::gguf
