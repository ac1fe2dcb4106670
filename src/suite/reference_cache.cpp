#include "suite/reference_cache.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <random>

#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/sha256.h"
#include "base/text.h"

namespace lockstep::suite {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTraceName = "trace";
constexpr const char* kDigestName = "digest";
constexpr const char* kMakingPrefix = ".making-";

int64_t folder_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, failed))
    if (entry.is_regular_file(failed)) bytes += static_cast<int64_t>(entry.file_size(failed));
  return bytes;
}

// The files of a trace and what is in them, a line each.
Result<std::string> digest_of(const fs::path& folder) {
  std::map<std::string, std::string> lines;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
    LS_TRY(const MappedFile file, MappedFile::open(entry.path().string()));
    Sha256 hash;
    hash.add(file.bytes());
    lines[entry.path().filename().string()] = hash.finish();
  }
  if (failed) return error("{}: {}", folder.string(), failed.message());
  std::string out;
  for (const auto& [file, hash] : lines) out += fmt::format("{}  {}\n", hash, file);
  return out;
}

// The trace of an entry whose numbers are those that were written.
Result<trace::Trace> open_entry(const fs::path& entry) {
  LS_TRY(const MappedFile written, MappedFile::open((entry / kDigestName).string()));
  LS_TRY(const std::string found, digest_of(entry / kTraceName));
  const auto bytes = written.bytes();
  if (std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()) != found)
    return error("{}: damaged", entry.string());
  return trace::Trace::open((entry / kTraceName).string());
}

std::string unique_name() {
  std::random_device random;
  return fmt::format("{}{:08x}{:08x}", kMakingPrefix, random(), random());
}

// Under another name first, so that nobody opens what is half gone.
void remove_entry(const fs::path& entry) {
  std::error_code ignored;
  const fs::path away = entry.parent_path() / unique_name();
  fs::rename(entry, away, ignored);
  fs::remove_all(ignored ? entry : away, ignored);
}

Result<void> make_entry(const fs::path& entry,
                        const std::function<Result<void>(const std::string&)>& make) {
  LS_TRY_VOID(make((entry / kTraceName).string()));
  LS_TRY(const std::string digest, digest_of(entry / kTraceName));
  LS_TRY(OutputFile file, OutputFile::create((entry / kDigestName).string()));
  LS_TRY_VOID(file.write(std::as_bytes(std::span(digest))));
  return file.publish();
}

}  // namespace

Result<trace::Trace> ReferenceCache::get(
    const std::string& key, const std::function<Result<void>(const std::string&)>& make) {
  const fs::path entry = fs::path(folder_) / key.substr(0, 2) / key;
  std::error_code failed;
  if (fs::exists(entry, failed)) {
    if (auto trace = open_entry(entry); trace.ok()) {
      fs::last_write_time(entry, fs::file_time_type::clock::now(), failed);  // it was used
      return trace;
    }
    remove_entry(entry);
  }
  const fs::path making = entry.parent_path() / unique_name();
  std::vector<std::string> made;
  LS_TRY_VOID(make_folders(making.string(), false, made));
  if (const Result<void> outcome = make_entry(making, make); !outcome.ok()) {
    fs::remove_all(making, failed);
    return outcome.error();
  }
  // Opened before others can take it away.
  auto trace = trace::Trace::open((making / kTraceName).string());
  const int64_t bytes = folder_bytes(making);
  fs::rename(making, entry, failed);
  if (failed) {  // another process was first: its numbers are the same
    fs::remove_all(making, failed);
    if (auto other = open_entry(entry); other.ok()) return other;
    return trace;
  }
  keep_to_limit(bytes);
  // Where it lies now; its old name is gone.
  if (auto again = trace::Trace::open((entry / kTraceName).string()); again.ok()) return again;
  return trace;
}

void ReferenceCache::keep_to_limit(int64_t added) {
  if (total_ >= 0) total_ += added;
  if (total_ >= 0 && total_ <= most_bytes_) return;
  struct Entry {
    fs::path path;
    fs::file_time_type used;
    int64_t bytes;
  };
  std::vector<Entry> entries;
  std::error_code failed;
  const auto now = fs::file_time_type::clock::now();
  total_ = 0;
  for (const fs::directory_entry& group : fs::directory_iterator(folder_, failed))
    for (const fs::directory_entry& entry : fs::directory_iterator(group.path(), failed)) {
      const fs::file_time_type used = entry.last_write_time(failed);
      const std::string name = entry.path().filename().string();
      if (name.starts_with(kMakingPrefix)) {  // of a process that was killed, a day ago
        if (now - used > std::chrono::hours(24)) fs::remove_all(entry.path(), failed);
      } else if (is_sha256(name)) {  // what else lies there is not ours
        entries.push_back({entry.path(), used, folder_bytes(entry.path())});
        total_ += entries.back().bytes;
      }
    }
  std::ranges::sort(entries, {}, &Entry::used);
  for (size_t i = 0; i + 1 < entries.size() && total_ > most_bytes_; ++i) {
    remove_entry(entries[i].path);
    total_ -= entries[i].bytes;
  }
}

}  // namespace lockstep::suite
