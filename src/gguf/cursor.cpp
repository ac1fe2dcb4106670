#include "gguf/cursor.h"

#include "base/text.h"

namespace lockstep::gguf {

Error Cursor::fail(int64_t at, const Field& field, std::string_view found,
                   std::string_view expected) const {
  std::string name(field.what);
  if (field.index >= 0) name += fmt::format(" {}", field.index);
  if (!field.of.empty()) name += fmt::format(" of '{}'", printable(field.of, 80));
  return error("{}: byte {}: {}: found {}, expected {}", printable(path_), at, name, found,
               expected);
}

Result<int64_t> Cursor::read_count(const Field& field, int64_t item_bytes) {
  const int64_t at = offset_;
  LS_TRY(const auto count, read<uint64_t>(field));
  const int64_t most = remaining() / item_bytes;
  if (count > static_cast<uint64_t>(most))
    return fail(at, field, fmt::format("{}", count),
                fmt::format("at most {}, since {} bytes are left in the file", most, remaining()));
  return static_cast<int64_t>(count);
}

Result<std::string_view> Cursor::read_text(const Field& length) {
  LS_TRY(const int64_t count, read_count(length, 1));
  LS_TRY(const auto raw, take(count, length));
  return std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size());
}

Result<std::span<const std::byte>> Cursor::take(int64_t bytes, const Field& field) {
  if (bytes > remaining())
    return fail(offset_, field, fmt::format("the end of the file after {} bytes", remaining()),
                fmt::format("{} bytes", bytes));
  const auto taken = bytes_.subspan(static_cast<size_t>(offset_), static_cast<size_t>(bytes));
  offset_ += bytes;
  return taken;
}

}  // namespace lockstep::gguf
