#include "trace/zip_writer.h"

#include <algorithm>

#include <zlib.h>

namespace lockstep::trace {
namespace {

constexpr uint32_t kInZip64 = 0xffffffff;      // "see the zip64 field"
constexpr uint16_t kZipVersion = 45;           // the first with zip64
constexpr uint16_t kFlags = 1 << 3 | 1 << 11;  // the checksum follows; names are UTF-8
constexpr uint16_t kDate = 1 << 5 | 1;         // 1980-01-01: the same bytes from the same data

void u16(std::string& out, uint16_t value) {
  for (int i = 0; i < 2; ++i) out += static_cast<char>(value >> 8 * i & 0xff);
}
void u32(std::string& out, uint32_t value) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> 8 * i & 0xff);
}
void u64(std::string& out, uint64_t value) {
  for (int i = 0; i < 8; ++i) out += static_cast<char>(value >> 8 * i & 0xff);
}

}  // namespace

Result<ZipWriter> ZipWriter::create(const std::string& path) {
  LS_TRY(OutputFile file, OutputFile::create(path));
  return ZipWriter(std::move(file));
}

Result<void> ZipWriter::put(const std::string& bytes) {
  written_ += bytes.size();
  return file_.write(std::as_bytes(std::span(bytes)));
}

Result<void> ZipWriter::begin(const std::string& name, int64_t size_bytes) {
  LS_CHECK(left_ == 0 && name.size() < 0xffff);
  left_ = static_cast<uint64_t>(size_bytes);
  members_.push_back({name, left_, written_, static_cast<uint32_t>(crc32(0, nullptr, 0))});
  std::string header;
  u32(header, 0x04034b50);
  u16(header, kZipVersion);
  u16(header, kFlags);
  u16(header, 0);  // stored
  u16(header, 0);
  u16(header, kDate);
  u32(header, 0);  // the checksum comes after the data
  u32(header, kInZip64);
  u32(header, kInZip64);
  u16(header, static_cast<uint16_t>(name.size()));
  u16(header, 20);
  header += name;
  u16(header, 1);  // zip64: sizes, original and stored
  u16(header, 16);
  u64(header, left_);
  u64(header, left_);
  return put(header);
}

Result<void> ZipWriter::write(std::span<const std::byte> bytes) {
  LS_CHECK(bytes.size() <= left_, "more data than was announced");
  Member& member = members_.back();
  member.crc = static_cast<uint32_t>(
      crc32_z(member.crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  left_ -= bytes.size();
  written_ += bytes.size();
  return file_.write(bytes);
}

Result<void> ZipWriter::end() {
  LS_CHECK(left_ == 0, "{} bytes are missing", left_);
  std::string descriptor;
  u32(descriptor, 0x08074b50);
  u32(descriptor, members_.back().crc);
  u64(descriptor, members_.back().size_bytes);
  u64(descriptor, members_.back().size_bytes);
  return put(descriptor);
}

Result<void> ZipWriter::finish() {
  const uint64_t directory = written_;
  for (const Member& member : members_) {
    std::string entry;
    u32(entry, 0x02014b50);
    u16(entry, kZipVersion);
    u16(entry, kZipVersion);
    u16(entry, kFlags);
    u16(entry, 0);
    u16(entry, 0);
    u16(entry, kDate);
    u32(entry, member.crc);
    u32(entry, kInZip64);
    u32(entry, kInZip64);
    u16(entry, static_cast<uint16_t>(member.name.size()));
    u16(entry, 28);
    u16(entry, 0);  // no comment
    u16(entry, 0);  // disk
    u16(entry, 0);
    u32(entry, 0);
    u32(entry, kInZip64);
    entry += member.name;
    u16(entry, 1);
    u16(entry, 24);
    u64(entry, member.size_bytes);
    u64(entry, member.size_bytes);
    u64(entry, member.offset);
    LS_TRY_VOID(put(entry));
  }
  const uint64_t end = written_;
  std::string tail;
  u32(tail, 0x06064b50);  // zip64 end of directory
  u64(tail, 44);
  u16(tail, kZipVersion);
  u16(tail, kZipVersion);
  u32(tail, 0);
  u32(tail, 0);
  u64(tail, members_.size());
  u64(tail, members_.size());
  u64(tail, end - directory);
  u64(tail, directory);
  u32(tail, 0x07064b50);  // and where that is
  u32(tail, 0);
  u64(tail, end);
  u32(tail, 1);
  u32(tail, 0x06054b50);  // end of directory
  u16(tail, 0);
  u16(tail, 0);
  const auto count = static_cast<uint16_t>(std::min<size_t>(members_.size(), 0xffff));
  u16(tail, count);
  u16(tail, count);
  u32(tail, kInZip64);
  u32(tail, kInZip64);
  u16(tail, 0);
  LS_TRY_VOID(put(tail));
  return file_.finish();
}

}  // namespace lockstep::trace
