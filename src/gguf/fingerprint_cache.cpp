#include "gguf/fingerprint_cache.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "base/output_file.h"
#include "base/places.h"

namespace lockstep::gguf {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Which files the fingerprint was taken of. Anything that JSON cannot say is replaced: two such
// paths may share an entry only if all else agrees too.
json identity(std::span<const Part> parts) {
  json files = json::array();
  for (const Part& part : parts) {
    std::error_code problem;
    files.push_back({{"path", fs::absolute(part.path, problem).lexically_normal().string()},
                     {"size_bytes", part.size_bytes},
                     {"device", part.stamp.device},
                     {"inode", part.stamp.inode},
                     {"modified_ns", part.stamp.modified_ns},
                     {"changed_ns", part.stamp.changed_ns}});
  }
  return files;
}

// The clocks of file systems have ticks, of up to two seconds.
constexpr int64_t kSettledNs = 3'000'000'000;

bool settled(const Part& part) {
  return part.stamp.seen_ns - std::max(part.stamp.modified_ns, part.stamp.changed_ns) >= kSettledNs;
}

std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

fs::path entry_path(std::span<const Part> parts) {
  const auto folder = cache_root();
  if (!folder.ok() || parts.empty()) return {};
  std::error_code problem;
  const std::string path = fs::absolute(parts[0].path, problem).lexically_normal().string();
  return fs::path(*folder) /
         fmt::format("fingerprint-{:016x}.json", XXH3_64bits(path.data(), path.size()));
}

bool is_fingerprint(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::optional<std::string> cached_fingerprint(std::span<const Part> parts) {
  const fs::path path = entry_path(parts);
  if (path.empty()) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  const json entry = json::parse(text.str(), nullptr, false);
  if (!entry.is_object() || !entry.contains("files") || !entry.contains("fingerprint") ||
      !entry["fingerprint"].is_string() || dumped(entry["files"]) != dumped(identity(parts)))
    return std::nullopt;
  auto fingerprint = entry["fingerprint"].get<std::string>();
  if (!is_fingerprint(fingerprint)) return std::nullopt;
  return fingerprint;
}

void cache_fingerprint(std::span<const Part> parts, const std::string& fingerprint) {
  const fs::path path = entry_path(parts);
  if (path.empty() || !std::ranges::all_of(parts, settled)) return;
  std::error_code problem;
  fs::create_directories(path.parent_path(), problem);
  const std::string text =
      dumped({{"files", identity(parts)}, {"fingerprint", fingerprint}}) + "\n";
  auto output = OutputFile::create(path.string());
  if (!output.ok() || !output->write(std::as_bytes(std::span(text))).ok()) return;
  (void)output->finish().ok();
}

}  // namespace lockstep::gguf
