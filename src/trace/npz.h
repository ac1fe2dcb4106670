// Arrays for numpy.load: a zip archive of .npy members.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "trace/zip_writer.h"

namespace lockstep::trace {

class NpzWriter {
 public:
  static Result<NpzWriter> create(const std::string& path);

  // An array, row-major, whose data comes in pieces through write(). `type` as numpy spells it:
  // "<f4", "<i8", "<U16". In the archive / \ : % and a dot in front stand as %2F and so on; a name
  // that comes again is an error.
  Result<void> begin(const std::string& name, std::string_view type, int64_t item_bytes,
                     const std::vector<int64_t>& shape);
  Result<void> write(std::span<const std::byte> bytes) { return zip_.write(bytes); }
  Result<void> end() { return zip_.end(); }

  Result<void> add(const std::string& name, std::span<const int64_t> values);
  Result<void> add(const std::string& name, std::span<const double> values);
  Result<void> add(const std::string& name, std::span<const std::string> texts);

  Result<void> finish() { return zip_.finish(); }

 private:
  explicit NpzWriter(ZipWriter zip) : zip_(std::move(zip)) {}
  ZipWriter zip_;
  std::unordered_set<std::string> names_;
};

// bf16, which numpy does not have, is widened to f32.
DType npy_dtype(DType dtype);
std::string_view npy_type(DType dtype);

}  // namespace lockstep::trace
