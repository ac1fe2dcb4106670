#include "models/check_file.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/mapped_file.h"
#include "base/progress.h"
#include "base/sha256.h"
#include "gguf/file.h"

namespace lockstep::models {
namespace {

// Nothing where interrupted.
std::optional<std::string> hash(std::span<const std::byte> bytes,
                                const std::atomic<bool>* interrupted) {
  constexpr size_t kPiece = 4'000'000;
  const size_t pieces = (bytes.size() + kPiece - 1) / kPiece;
  Progress progress("checking SHA-256", static_cast<int64_t>(pieces * 4), "MB");
  Sha256 sum;
  while (!bytes.empty()) {
    if (interrupted != nullptr && *interrupted) return std::nullopt;
    const size_t size = std::min(kPiece, bytes.size());
    sum.add(bytes.first(size));
    bytes = bytes.subspan(size);
    progress.advance(4);
  }
  return sum.finish();
}

}  // namespace

FileCheck check_file(const std::string& path, const Expected& expected,
                     const std::atomic<bool>* interrupted) {
  const auto file = MappedFile::open(path);
  if (!file.ok()) return {FileVerdict::kWrongBytes, file.error().message, {}};
  const std::span<const std::byte> bytes = file->bytes();
  const auto size = static_cast<int64_t>(bytes.size());
  if (expected.size_bytes > 0 && size != expected.size_bytes)
    return {FileVerdict::kWrongBytes,
            fmt::format("found {} bytes, expected {}", size, expected.size_bytes),
            {}};
  const auto sum = hash(bytes, interrupted);
  if (!sum) return {FileVerdict::kInterrupted, "interrupted", {}};
  if (!expected.sha256.empty() && *sum != expected.sha256)
    return {FileVerdict::kWrongBytes,
            fmt::format("found SHA-256 {}, expected {}", *sum, expected.sha256), *sum};
  // The reader checks that every tensor lies within the file, so that a file that was cut off by a
  // server without lengths does not pass.
  const auto parsed = gguf::File::parse(bytes, path);
  if (!parsed.ok())
    return {expected.sha256.empty() ? FileVerdict::kWrongBytes : FileVerdict::kUnreadable,
            parsed.error().message, *sum};
  return {FileVerdict::kWhole, {}, *sum};
}

}  // namespace lockstep::models
