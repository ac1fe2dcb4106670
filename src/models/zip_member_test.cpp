#include "models/zip_member.h"

#include <random>

#include <gtest/gtest.h>
#include <zlib.h>

#include "base/random.h"

namespace lockstep::models {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

void add16(std::string& out, size_t value) {
  out += static_cast<char>(value);
  out += static_cast<char>(value >> 8);
}
void add32(std::string& out, size_t value) {
  add16(out, value);
  add16(out, value >> 16);
}

struct Item {
  std::string name;
  std::string contents;
  bool deflated = true;
};

std::string deflated(const std::string& contents) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(contents.size() + contents.size() / 100 + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(contents.data()));
  stream.avail_in = static_cast<uInt>(contents.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string archive_of(const std::vector<Item>& items, const std::string& comment = "") {
  std::string out;
  std::string list;
  for (const Item& item : items) {
    const std::string data = item.deflated ? deflated(item.contents) : item.contents;
    const size_t sum = ::crc32(0, reinterpret_cast<const Bytef*>(item.contents.data()),
                               static_cast<uInt>(item.contents.size()));
    std::string common;  // of both headers, from the flags to the lengths of texts
    add16(common, 0);
    add16(common, item.deflated ? 8 : 0);
    add32(common, 0);
    add32(common, sum);
    add32(common, data.size());
    add32(common, item.contents.size());
    add16(common, item.name.size());
    std::string local = "PK\x03\x04";
    add16(local, 20);
    local += common;
    add16(local, 3);
    local += item.name + "ext";
    std::string entry = "PK\x01\x02";
    add16(entry, 20);
    add16(entry, 20);
    entry += common;
    add16(entry, 5);
    add16(entry, 2);
    add16(entry, 0);
    add16(entry, 0);
    add32(entry, 0);
    add32(entry, out.size());
    list += entry + item.name + "extraCC";
    out += local + data;
  }
  std::string end = "PK\x05\x06";
  add32(end, 0);
  add16(end, items.size());
  add16(end, items.size());
  add32(end, list.size());
  add32(end, out.size());
  add16(end, comment.size());
  return out + list + end + comment;
}

Result<std::string> read(const std::string& archive, const std::string& name) {
  LS_TRY(const ZipMember member, find_zip_member(bytes_of(archive), name));
  std::string out;
  LS_TRY_VOID(unpack(member, [&](std::span<const char> piece) -> Result<void> {
    out.append(piece.data(), piece.size());
    return {};
  }));
  return out;
}

std::string random_text(Random& random, int64_t size) {
  std::string text(static_cast<size_t>(size), '\0');
  for (char& c : text) c = static_cast<char>(random.below(random.below(2) == 0 ? 256 : 4));
  return text;
}

TEST(ZipMember, EveryFileComesBack) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Random random(seed);
  std::vector<Item> items;
  for (const int64_t size : {0, 1, 7, 65535, 65537, 1 << 20, (1 << 20) + 1, 3'000'001})
    for (const bool packed : {false, true})
      items.push_back({fmt::format("a/{} {}", size, packed), random_text(random, size), packed});
  const std::string archive = archive_of(items, "a comment");
  for (const Item& item : items) {
    const auto found = read(archive, item.name);
    ASSERT_TRUE(found.ok()) << item.name << ": " << found.error().message;
    EXPECT_TRUE(*found == item.contents) << item.name;
  }
  EXPECT_EQ(read(archive, "a/x").error().message, "the zip archive of 16 files has no 'a/x'");
}

TEST(ZipMember, WhatIsWrongIsSaid) {
  const std::string good = archive_of({{"x", "hello hello hello", true}});
  const size_t list = good.find("PK\x01\x02");
  const auto changed = [&](size_t place, std::string_view with) {
    std::string bad = good;
    bad.replace(place, with.size(), with);
    const auto found = read(bad, "x");
    return found.ok() ? "no error" : found.error().message;
  };
  EXPECT_EQ(read("", "x").error().message, "no zip archive: its end is missing");
  EXPECT_EQ(changed(good.size() - 22, "X"), "no zip archive: its end is missing");
  EXPECT_EQ(changed(list, "X"), fmt::format("zip archive: entry 0 of 1 is not at {}", list));
  EXPECT_EQ(changed(list + 28, "\xff\xff"), "zip archive: entry 0 of 1 reaches beyond the list");
  EXPECT_EQ(changed(list + 8, "\x01"), "x: is encrypted");
  EXPECT_EQ(changed(list + 10, "\x0e"), "x: is packed by method 14, expected 0 or 8");
  EXPECT_EQ(changed(list + 24, "\xff\xff\xff\xff"), "x: is beyond 4 GB");
  EXPECT_EQ(changed(list + 42, "\x05"), "x: its place in the archive, 5, holds no file");
  EXPECT_TRUE(changed(list + 21, "\x7f").ends_with("do not lie in the archive"));
  EXPECT_EQ(changed(list + 16, "abcd"), "found the checksum e5f98880, expected 64636261");
  EXPECT_EQ(changed(list + 24, "\x10"), "unpacks to more than the 16 bytes that it states");
  EXPECT_EQ(changed(list + 24, "\x12"), "unpacks to 17 bytes, but states 18");
  EXPECT_EQ(changed(list + 20, "\x02"), "its packed data is broken or ends too early");
  EXPECT_EQ(changed(list + 10, std::string_view("\0", 1)), "x: is stored in 10 bytes, but has 17");
}

// A gigabyte of zeros in a megabyte is not unpacked beyond what is stated.
TEST(ZipMember, ABombStopsWhereItLies) {
  std::string bomb = archive_of({{"x", std::string(50'000'000, '\0'), true}});
  const size_t list = bomb.find("PK\x01\x02");
  bomb.replace(list + 24, 4, std::string("\x64\0\0\0", 4));
  int64_t given = 0;
  const auto member = find_zip_member(bytes_of(bomb), "x");
  ASSERT_TRUE(member.ok());
  const auto outcome = unpack(*member, [&](std::span<const char> piece) -> Result<void> {
    given += static_cast<int64_t>(piece.size());
    return {};
  });
  EXPECT_EQ(outcome.error().message, "unpacks to more than the 100 bytes that it states");
  EXPECT_LE(given, 100);
}

// Cut off or with one byte changed: an error or the same contents, never a crash.
TEST(ZipMember, BrokenArchives) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Random random(seed);
  const std::string contents = random_text(random, 300);
  const std::string good = archive_of({{"x", contents, true}, {"y", "stored", false}});
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(read(good.substr(0, size), "x").ok()) << size;
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    bad[static_cast<size_t>(random.below(static_cast<int64_t>(bad.size())))] =
        static_cast<char>(random.next());
    const auto found = read(bad, "x");
    EXPECT_TRUE(!found.ok() || *found == contents);
  }
}

}  // namespace
}  // namespace lockstep::models
