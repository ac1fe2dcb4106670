// The GGUF reader on any bytes: no crash, no hang, no memory that the input does not justify. What
// parses is then used through every accessor, and all data that it points to is read.
#include <cstdlib>

#include "base/check.h"
#include "gguf/file.h"

namespace {

using lockstep::gguf::Entry;
using lockstep::gguf::File;
using lockstep::gguf::Tensor;

void use_metadata(const File& file) {
  for (const Entry& entry : file.metadata()) {
    LS_CHECK(file.find(entry.key) == &entry.value, "key is not found by its name");
    // One at most of these fits; the others must fail politely.
    const int fitting = file.integer(entry.key).ok() + file.real(entry.key).ok() +
                        file.boolean(entry.key).ok() + file.text(entry.key).ok() +
                        file.texts(entry.key).ok() + file.integers(entry.key).ok() +
                        file.reals(entry.key).ok();
    LS_CHECK(fitting <= 1, "{} types for one value", fitting);
    LS_CHECK(file.integer_or(entry.key, 0).ok() == file.integer(entry.key).ok());
    preview(entry.value, 4, 40);
    type_name(entry.value);
    std::string bytes;
    append_value(bytes, entry.value);
    LS_CHECK(static_cast<int64_t>(bytes.size()) <= file.size_bytes(), "larger than its file");
  }
}

void use_tensors(const File& file, const uint8_t* begin, size_t size) {
  uint64_t total_bytes = 0;
  for (const Tensor& tensor : file.tensors()) {
    LS_CHECK(file.tensor(tensor.name) == &tensor, "tensor is not found by its name");
    const auto* data = reinterpret_cast<const uint8_t*>(tensor.data.data());
    LS_CHECK(data >= begin && data + tensor.data.size() <= begin + size, "data is not in the file");
    LS_CHECK(data - begin == tensor.file_offset);
    LS_CHECK(static_cast<int64_t>(tensor.data.size()) ==
             lockstep::quant::size_bytes(*tensor.format, tensor.values()));
    total_bytes += tensor.data.size();
    for (const std::byte b : tensor.data) {
      volatile std::byte sink = b;
      (void)sink;
    }
    tensor.shape();
  }
  LS_CHECK(total_bytes <= size, "tensors overlap");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = File::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.ok()) {
    LS_CHECK(file.error().message.starts_with("fuzz: byte "), "{}", file.error().message);
    return 0;
  }
  use_metadata(*file);
  use_tensors(*file, data, size);
  return 0;
}
