// The safetensors file format: an 8-byte length, a JSON header, then the data of all tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/mapped_file.h"
#include "base/result.h"

namespace lockstep::trace {

// Bytes. The format's own limit; no honest header comes near.
inline constexpr uint64_t kLargestHeader = 100'000'000;

// The number types that the format knows, by its names: "F64", "I64", ...
struct StoredType {
  std::string_view name;
  int64_t size_bytes;
};
const StoredType* find_stored_type(std::string_view name);  // nullptr where unknown
std::string_view stored_name(DType dtype);                  // "F64", "F32", "F16", "BF16"

struct StoredTensor {
  const StoredType* type = nullptr;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // no alignment is promised
};

// A file mapped for reading. Everything in the header is checked against the file.
class Safetensors {
 public:
  static Result<Safetensors> open(const std::string& path);
  // From bytes in memory, which must outlive it; `path` is for messages.
  static Result<Safetensors> parse(std::span<const std::byte> bytes, const std::string& path);

  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;

 private:
  Safetensors() = default;
  std::vector<MappedFile> map_;  // one, or none where the bytes are somebody else's
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

// What a file to be written holds, in the order of its data.
struct StoredPlan {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  int64_t size_bytes() const;
};

// The 8-byte length and the header; the data of the first tensor follows at the returned size.
std::string safetensors_header(std::span<const StoredPlan> tensors);

}  // namespace lockstep::trace
