#include "gguf/imatrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/mapped_file.h"
#include "base/text.h"
#include "gguf/file.h"
#include "gguf/writer.h"

namespace lockstep::gguf {
namespace {

constexpr std::string_view kSquares = ".in_sum2", kCounts = ".counts";

// The .dat form: whole numbers of 32 bits, texts with their length before them, floats.
class DatReader {
 public:
  DatReader(std::span<const std::byte> bytes, const std::string& path)
      : bytes_(bytes), path_(path) {}

  bool at_end() const { return at_ == bytes_.size(); }

  Result<int32_t> number(const char* what) {
    LS_TRY(const auto raw, take(sizeof(int32_t), what));
    int32_t value;
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }

  // A number that counts things of `size` bytes, all of which are there.
  Result<int64_t> count(int64_t size, const char* what) {
    LS_TRY(const int32_t value, number(what));
    const auto left = static_cast<int64_t>(bytes_.size() - at_);
    if (value < 0 || value > left / size)
      return error("{}: found {} as {} at byte {}, with {} bytes left", path_, value, what,
                   at_ - sizeof value, left);
    return int64_t{value};
  }

  Result<std::span<const std::byte>> take(size_t size, const char* what) {
    if (size > bytes_.size() - at_)
      return error("{}: ends at byte {} within {}", path_, bytes_.size(), what);
    const auto out = bytes_.subspan(at_, size);
    at_ += size;
    return out;
  }

  Result<std::string> text(const char* what) {
    LS_TRY(const int64_t size, count(1, what));
    LS_TRY(const auto raw, take(static_cast<size_t>(size), what));
    return std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  size_t at_ = 0;
};

std::vector<double> floats(std::span<const std::byte> raw) {
  std::vector<double> out(raw.size() / sizeof(float));
  for (size_t i = 0; i < out.size(); ++i) {
    float value;
    std::memcpy(&value, raw.data() + i * sizeof value, sizeof value);
    out[i] = static_cast<double>(value);
  }
  return out;
}

bool all_sums(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double x) { return std::isfinite(x) && x >= 0; });
}

Result<Imatrix> parse_dat(std::span<const std::byte> bytes, const std::string& path) {
  Imatrix out;
  DatReader reader(bytes, path);
  constexpr int64_t kLeastEntry = 12;  // three numbers
  LS_TRY(const int64_t entries, reader.count(kLeastEntry, "the number of entries"));
  if (entries == 0) return error("{}: no entries; expected an importance matrix", path);
  for (int64_t i = 0; i < entries; ++i) {
    LS_TRY(std::string name, reader.text("the length of a name"));
    LS_TRY(const int32_t calls, reader.number("a number of calls"));
    LS_TRY(const int64_t values, reader.count(sizeof(float), "a number of values"));
    LS_TRY(const auto raw, reader.take(static_cast<size_t>(values) * sizeof(float), "values"));
    Imatrix::Sums sums{floats(raw), {static_cast<double>(std::max(calls, 1))}};
    if (values == 0 || !all_sums(sums.squares))
      return error("{}: {}: expected values that are finite and not negative", path,
                   printable(name, 100));
    if (!out.tensors.emplace(name, std::move(sums)).second)
      return error("{}: {} stands there twice", path, printable(name, 100));
  }
  if (reader.at_end()) return out;  // older files end here
  LS_TRY(out.chunks, reader.number("the number of chunks"));
  LS_TRY(out.dataset, reader.text("the length of the dataset's name"));
  return out;
}

Result<std::vector<double>> tensor_sums(const Tensor& tensor, const std::string& path) {
  if (tensor.format->format() != quant::Format::kF32)
    return error("{}: {} is {}, expected F32", path, printable(tensor.name, 100),
                 tensor.format->name);
  std::vector<double> out = floats(tensor.data);
  if (!all_sums(out))
    return error("{}: {}: expected values that are finite and not negative", path,
                 printable(tensor.name, 100));
  return out;
}

Result<Imatrix> from_gguf(const File& file, const std::string& path) {
  Imatrix out;
  LS_TRY(const std::string_view type, file.text_or("general.type", ""));
  if (type != "imatrix")
    return error("{}: general.type is '{}', expected 'imatrix': this is no importance matrix", path,
                 printable(type, 100));
  for (const Tensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with(kSquares)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - kSquares.size());
    const Tensor* counts = file.tensor(name + std::string(kCounts));
    if (counts == nullptr)
      return error("{}: {} has no {}{}", path, printable(tensor.name, 100), printable(name, 100),
                   kCounts);
    Imatrix::Sums sums;
    LS_TRY(sums.squares, tensor_sums(tensor, path));
    LS_TRY(sums.counts, tensor_sums(*counts, path));
    if (sums.counts.empty() || sums.squares.empty() ||
        sums.squares.size() % sums.counts.size() != 0)
      return error("{}: {} has {} values and {} counts; expected as many for each count", path,
                   printable(name, 100), sums.squares.size(), sums.counts.size());
    out.tensors.emplace(name, std::move(sums));
  }
  if (out.tensors.empty()) return error("{}: no entries; expected an importance matrix", path);
  LS_TRY(out.chunks, file.integer_or("imatrix.chunk_count", 0));
  LS_TRY(out.chunk_size, file.integer_or("imatrix.chunk_size", 0));
  if (file.find("imatrix.datasets") != nullptr) {
    LS_TRY(const auto* datasets, file.texts("imatrix.datasets"));
    if (!datasets->empty()) out.dataset = datasets->back();
  }
  return out;
}

}  // namespace

int64_t Imatrix::Sums::columns() const {
  return static_cast<int64_t>(squares.size() / counts.size());
}

Result<Imatrix> Imatrix::read(const std::string& path) {
  LS_TRY(const MappedFile file, MappedFile::read(path));
  return parse(file.bytes(), path);
}

Result<Imatrix> Imatrix::parse(std::span<const std::byte> bytes, const std::string& path) {
  constexpr std::string_view kGgufStart = "GGUF";
  const bool gguf = bytes.size() >= kGgufStart.size() &&
                    std::memcmp(bytes.data(), kGgufStart.data(), kGgufStart.size()) == 0;
  Imatrix out;
  if (gguf) {
    LS_TRY(const File file, File::parse(bytes, path));
    LS_TRY(out, from_gguf(file, path));
  } else {
    LS_TRY(out, parse_dat(bytes, path));
  }
  out.path_ = path;
  return out;
}

Result<void> Imatrix::write(const std::string& path) const {
  const auto number = [](int64_t value) {
    return Value{static_cast<uint32_t>(std::clamp<int64_t>(value, 0, UINT32_MAX))};
  };
  const std::vector<Entry> metadata = {
      {"general.type", {std::string("imatrix")}},
      {"imatrix.datasets", {Array{std::vector<std::string>{dataset}}}},
      {"imatrix.chunk_count", number(chunks)},
      {"imatrix.chunk_size", number(chunk_size)}};
  const quant::FormatInfo* format = &quant::info(quant::Format::kF32);
  std::vector<TensorPlan> plans;
  for (const auto& [name, sums] : tensors) {
    const auto matrices = static_cast<int64_t>(sums.counts.size());
    plans.push_back({name + std::string(kSquares), format, {sums.columns(), matrices}});
    plans.push_back({name + std::string(kCounts), format, {1, matrices}});
  }
  LS_TRY(Writer writer, Writer::create(path, metadata, plans));
  for (const auto& [name, sums] : tensors)
    for (const std::vector<double>* numbers : {&sums.squares, &sums.counts}) {
      const std::vector<float> singles(numbers->begin(), numbers->end());
      LS_TRY_VOID(writer.write(std::as_bytes(std::span(singles))));
    }
  return writer.finish();
}

Result<std::vector<float>> Imatrix::means(std::string_view tensor,
                                          std::span<const int64_t> dims) const {
  const auto found = tensors.find(tensor);
  if (found == tensors.end()) return std::vector<float>();
  const Sums& sums = found->second;
  const int64_t columns = dims[0];
  const auto values = static_cast<int64_t>(sums.squares.size());
  const int64_t matrices = dims.size() > 2 ? dims[2] : 1;
  if (values != columns && values != columns * matrices)
    return error("{}: {} has {} values; the tensor's {} matri{} of {} columns need {}", path_,
                 printable(tensor, 100), values, matrices, matrices == 1 ? "x" : "ces", columns,
                 columns * matrices);
  std::vector<float> out(sums.squares.size());
  const size_t each = sums.squares.size() / sums.counts.size();
  for (size_t i = 0; i < out.size(); ++i) {
    const double count = sums.counts[i / each];
    out[i] = count > 0 ? static_cast<float>(sums.squares[i] / count) : 1.0f;
  }
  return out;
}

}  // namespace lockstep::gguf
