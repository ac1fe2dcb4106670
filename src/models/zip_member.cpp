#include "models/zip_member.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <zlib.h>

#include "base/text.h"

namespace lockstep::models {
namespace {

using Bytes = std::span<const std::byte>;

// Sizes of the parts without their texts, and the signatures that they begin with.
constexpr size_t kEndSize = 22;
constexpr size_t kEntrySize = 46;
constexpr size_t kLocalSize = 30;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEntrySignature = 0x02014b50;
constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr size_t kLongestComment = 65535;
constexpr uint32_t kStored = 0;
constexpr uint32_t kDeflated = 8;
constexpr uint32_t kEncrypted = 1;
constexpr uint32_t kBeyond = 0xFFFFFFFF;  // the number is in an extension that we do not read

// The caller has checked that it lies within.
template <class Number>
uint32_t number_at(Bytes bytes, size_t offset) {
  Number value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}
uint32_t u16(Bytes bytes, size_t offset) {
  return number_at<uint16_t>(bytes, offset);
}
uint32_t u32(Bytes bytes, size_t offset) {
  return number_at<uint32_t>(bytes, offset);
}

// Where the record at the end of the archive is; a comment may follow it.
Result<size_t> find_end(Bytes archive) {
  if (archive.size() >= kEndSize) {
    const size_t last = archive.size() - kEndSize;
    const size_t first = last - std::min(last, kLongestComment);
    for (size_t offset = last + 1; offset-- > first;)
      if (u32(archive, offset) == kEndSignature) return offset;
  }
  return error("no zip archive: its end is missing");
}

Result<ZipMember> read_entry(Bytes archive, Bytes entry) {
  const uint32_t method = u16(entry, 10);
  if ((u16(entry, 8) & kEncrypted) != 0) return error("is encrypted");
  if (method != kStored && method != kDeflated)
    return error("is packed by method {}, expected {} or {}", method, kStored, kDeflated);
  const uint32_t packed = u32(entry, 20);
  const uint32_t size = u32(entry, 24);
  const size_t local = u32(entry, 42);
  if (packed == kBeyond || size == kBeyond || local == kBeyond) return error("is beyond 4 GB");
  // The names before the data may be of another length there than in the list.
  if (local > archive.size() || archive.size() - local < kLocalSize ||
      u32(archive, local) != kLocalSignature)
    return error("its place in the archive, {}, holds no file", local);
  const size_t data = local + kLocalSize + u16(archive, local + 26) + u16(archive, local + 28);
  if (data > archive.size() || archive.size() - data < packed)
    return error("its {} bytes at {} do not lie in the archive", packed, data);
  if (method == kStored && packed != size)
    return error("is stored in {} bytes, but has {}", packed, size);
  return ZipMember{archive.subspan(data, packed), method == kDeflated, size, u32(entry, 16)};
}

struct Inflater {
  z_stream stream{};
  bool ready = ::inflateInit2(&stream, -MAX_WBITS) == Z_OK;  // without zlib's own header
  ~Inflater() { ::inflateEnd(&stream); }
};

}  // namespace

Result<ZipMember> find_zip_member(Bytes archive, std::string_view name) {
  LS_TRY(const size_t end, find_end(archive));
  const uint32_t count = u16(archive, end + 10);
  size_t offset = u32(archive, end + 16);
  for (uint32_t i = 0; i < count; ++i) {
    if (offset > end || end - offset < kEntrySize || u32(archive, offset) != kEntrySignature)
      return error("zip archive: entry {} of {} is not at {}", i, count, offset);
    const Bytes entry = archive.subspan(offset, end - offset);
    const size_t name_size = u16(entry, 28);
    const size_t size = kEntrySize + name_size + u16(entry, 30) + u16(entry, 32);
    if (size > entry.size())
      return error("zip archive: entry {} of {} reaches beyond the list", i, count);
    const std::string_view found(reinterpret_cast<const char*>(entry.data()) + kEntrySize,
                                 name_size);
    if (found == name) {
      Result<ZipMember> member = read_entry(archive, entry.first(size));
      if (!member.ok()) return error("{}: {}", printable(name, 200), member.error().message);
      return member;
    }
    offset += size;
  }
  return error("the zip archive of {} files has no '{}'", count, printable(name, 200));
}

Result<void> unpack(const ZipMember& member, const ZipSink& sink) {
  int64_t size = 0;
  uLong sum = ::crc32(0, nullptr, 0);
  const auto give = [&](const char* data, size_t count) -> Result<void> {
    size += static_cast<int64_t>(count);
    if (size > member.size_bytes)
      return error("unpacks to more than the {} bytes that it states", member.size_bytes);
    sum = ::crc32(sum, reinterpret_cast<const Bytef*>(data), static_cast<uInt>(count));
    return sink({data, count});
  };

  constexpr size_t kPiece = size_t{1} << 20;
  Bytes rest = member.data;
  if (!member.deflated) {
    while (!rest.empty()) {
      const Bytes piece = rest.first(std::min(kPiece, rest.size()));
      LS_TRY_VOID(give(reinterpret_cast<const char*>(piece.data()), piece.size()));
      rest = rest.subspan(piece.size());
    }
  } else {
    Inflater inflater;
    if (!inflater.ready) return error("zlib does not start");
    z_stream& stream = inflater.stream;
    std::vector<char> out(kPiece);
    int status = Z_OK;
    while (status != Z_STREAM_END) {
      const Bytes piece = rest.first(std::min(kPiece, rest.size()));
      stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(piece.data()));
      stream.avail_in = static_cast<uInt>(piece.size());
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      status = ::inflate(&stream, Z_NO_FLUSH);
      rest = rest.subspan(piece.size() - stream.avail_in);
      const size_t count = out.size() - stream.avail_out;
      // No progress means that the data ends too early.
      if (status != Z_STREAM_END && (status != Z_OK || (count == 0 && rest.empty())))
        return error("its packed data is broken or ends too early");
      LS_TRY_VOID(give(out.data(), count));
    }
  }
  if (size != member.size_bytes)
    return error("unpacks to {} bytes, but states {}", size, member.size_bytes);
  if (sum != member.crc32)
    return error("found the checksum {:08x}, expected {:08x}", sum, member.crc32);
  return {};
}

}  // namespace lockstep::models
