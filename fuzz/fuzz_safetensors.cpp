// The safetensors reader on any bytes. All data that a tensor points to is read.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "trace/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::trace;
  const auto file = Safetensors::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.ok()) {
    LS_CHECK(file.error().message.starts_with("fuzz: "), "{}", file.error().message);
    return 0;
  }
  for (const auto& [name, tensor] : file->tensors()) {
    LS_CHECK(file->find(name) == &tensor);
    int64_t bytes = tensor.type->size_bytes;
    for (const int64_t extent : tensor.shape) bytes *= extent;
    LS_CHECK(static_cast<int64_t>(tensor.data.size()) == bytes);
    const auto* begin = reinterpret_cast<const uint8_t*>(tensor.data.data());
    LS_CHECK(tensor.data.empty() || (begin >= data && begin + bytes <= data + size));
    for (const std::byte b : tensor.data) {
      volatile std::byte sink = b;
      (void)sink;
    }
  }
  return 0;
}
