#include "gguf/split.h"

#include <optional>

#include "base/text.h"

namespace lockstep::gguf {
namespace {

constexpr std::string_view kNumber = "split.no";
constexpr std::string_view kCount = "split.count";
constexpr std::string_view kTensors = "split.tensors.count";

constexpr int64_t kMaxParts = 65535;  // the format's own type for it is u16

std::string suffix(int64_t number, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

// The path without the suffix of that part, or nothing where it has another.
std::optional<std::string> prefix(const std::string& path, int64_t number, int64_t count) {
  const std::string end = suffix(number, count);
  if (!path.ends_with(end)) return std::nullopt;
  return path.substr(0, path.size() - end.size());
}

}  // namespace

Result<Split> read_split(const File& file) {
  Split split;
  LS_TRY(split.count, file.integer_or(kCount, 0));
  if (split.count <= 1) return split;  // files that were merged again say 0
  if (split.count > kMaxParts)
    return error("{}: metadata '{}': found {}, expected at most {}", printable(file.path()), kCount,
                 split.count, kMaxParts);
  LS_TRY(const int64_t number, file.integer(kNumber));
  LS_TRY(split.tensors, file.integer(kTensors));
  if (number == 0) return split;
  const auto stem = prefix(file.path(), number, split.count);
  return error("{}: this is part {} of {} of a split model: open the first one{}",
               printable(file.path()), number + 1, split.count,
               stem ? ", " + printable(*stem + suffix(0, split.count)) : "");
}

Result<std::vector<std::string>> split_paths(const std::string& first_path, const Split& split) {
  const auto stem = prefix(first_path, 0, split.count);
  if (!stem)
    return error(
        "{}: this is part 1 of {} of a split model: found a name that does not end in '{}', so the "
        "other parts cannot be found",
        printable(first_path), split.count, suffix(0, split.count));
  std::vector<std::string> paths;
  for (int64_t i = 0; i < split.count; ++i) paths.push_back(*stem + suffix(i, split.count));
  return paths;
}

Result<void> check_part(const File& part, int64_t index, const Split& split) {
  LS_TRY(const int64_t number, part.integer(kNumber));
  LS_TRY(const int64_t count, part.integer(kCount));
  if (number != index || count != split.count)
    return error("{}: found part {} of {} ({}, {}), expected part {} of {}", printable(part.path()),
                 number + 1, count, kNumber, kCount, index + 1, split.count);
  return {};
}

Result<void> check_total(const File& merged, const Split& split) {
  const auto found = static_cast<int64_t>(merged.tensors().size());
  if (found != split.tensors)
    return error("{}: found {} tensors in {} parts, expected {} ({})", printable(merged.path()),
                 found, split.count, split.tensors, kTensors);
  return {};
}

}  // namespace lockstep::gguf
