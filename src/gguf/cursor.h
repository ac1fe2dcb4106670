// Reads forward through the bytes of a file. Whatever does not fit is an error that says where.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF numbers are little-endian");

// What is being read, put into words only when it fails: "length of element 3 of 'a.b'".
struct Field {
  std::string_view what;
  int64_t index = -1;        // which of several; -1: the only one
  std::string_view of = {};  // the key or tensor that it belongs to
};

class Cursor {
 public:
  // `path` is for messages. Both must outlive the cursor.
  Cursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  int64_t offset() const { return offset_; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  int64_t remaining() const { return size() - offset_; }

  // "FILE: byte N: FIELD: found F, expected E"
  Error fail(int64_t at, const Field& field, std::string_view found,
             std::string_view expected) const;

  template <class T>
  Result<T> read(const Field& field) {
    LS_TRY(const auto raw, take(sizeof(T), field));
    T value;
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }

  // How many items follow, each of at least `item_bytes`: more than the file can hold is an error,
  // so that it is safe to believe the number.
  Result<int64_t> read_count(const Field& field, int64_t item_bytes);

  // A length and so many bytes, still in the file. `length` names the length in errors.
  Result<std::string_view> read_text(const Field& length);

  Result<std::span<const std::byte>> take(int64_t bytes, const Field& field);

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  int64_t offset_ = 0;
};

}  // namespace lockstep::gguf
