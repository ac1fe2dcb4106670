// Of lockstep/recorder.h: the files of a trace, each under its name only when it is whole.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "json.h"
#include "values.h"

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <unistd.h>
#define LOCKSTEP_CAN_SYNC 1
#else
#define LOCKSTEP_CAN_SYNC 0
#endif

namespace lockstep::detail {

// To the disk: what outlasts a power failure. False: errno says why.
inline bool sync_file([[maybe_unused]] std::FILE* file) {
#if LOCKSTEP_CAN_SYNC
  return std::fflush(file) == 0 && ::fsync(::fileno(file)) == 0;
#else
  return false;
#endif
}

// The names in a folder.
inline bool sync_folder([[maybe_unused]] const std::string& path) {
#if LOCKSTEP_CAN_SYNC
  const int fd = ::open(path.empty() ? "." : path.c_str(), O_RDONLY);
  if (fd < 0) return false;
  // Some file systems have no such call for folders: their names need none.
  const bool done = ::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
  const int problem = errno;
  ::close(fd);
  errno = problem;
  return done;
#else
  return false;
#endif
}

// Written under another name first. Where it is not published, nothing is left of it.
class PartFile {
 public:
  PartFile() = default;
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() { drop(); }

  bool is_open() const { return file_ != nullptr; }
  bool open(const std::string& path) { return open(path, ".part", "wb"); }
  // For publish_new(): fails with EEXIST where another process is about to do the same.
  bool open_new(const std::string& path) { return open(path, ".first", "wbx"); }
  bool write(const void* data, size_t bytes) { return std::fwrite(data, 1, bytes, file_) == bytes; }
  bool write(const std::string& text) { return write(text.data(), text.size()); }
  bool seek(size_t place) { return std::fseek(file_, static_cast<long>(place), SEEK_SET) == 0; }
  // `synced`: it is on the disk before it has its name.
  bool publish(bool synced) {
    return close(synced) && (std::rename(part().c_str(), path_.c_str()) == 0 || give_up());
  }
  // Never in the place of another file: then it fails with EEXIST.
  bool publish_new(bool synced) {
    if (!close(synced)) return false;
    std::error_code problem;
    std::filesystem::create_hard_link(part(), path_, problem);
    if (!problem) {
      std::remove(part().c_str());
      return true;
    }
    errno = EEXIST;
    if (problem == std::errc::file_exists) return give_up();
    // A file system without links: an empty file holds the place.
    std::FILE* place = std::fopen(path_.c_str(), "wbx");
    if (place == nullptr) return give_up();
    std::fclose(place);
    return std::rename(part().c_str(), path_.c_str()) == 0 || give_up();
  }
  void drop() {
    if (file_ == nullptr) return;
    const int problem = errno;
    std::fclose(std::exchange(file_, nullptr));
    std::remove(part().c_str());
    errno = problem;
  }

 private:
  std::string part() const { return path_ + suffix_; }
  bool open(const std::string& path, const char* suffix, const char* mode) {
    drop();
    path_ = path;
    suffix_ = suffix;
    file_ = std::fopen(part().c_str(), mode);
    return file_ != nullptr;
  }
  bool close(bool synced) {
    if (synced && !sync_file(file_)) {
      drop();
      return false;
    }
    return std::fclose(std::exchange(file_, nullptr)) == 0 || give_up();
  }
  bool give_up() {
    const int problem = errno;
    std::remove(part().c_str());
    errno = problem;
    return false;
  }

  std::FILE* file_ = nullptr;
  std::string path_;
  const char* suffix_ = "";
};

// A value of a step, dense.
struct Stored {
  std::string name;
  NumberType type = NumberType::kF32;
  std::vector<int64_t> shape;
  size_t bytes = 0;
  std::unique_ptr<char[]> data;  // null before it is copied, and when it is on the disk
  bool copied = false;
};

struct Step {
  int64_t index = 0, first_position = 0, tokens = 0;
  std::vector<Stored> values;
  std::string shard;            // once it has one
  std::vector<size_t> on_disk;  // of a large step: which values, in the order of its shard
  int64_t bytes = 0;            // of values that were copied
};

// Gathers steps in shards; `describe` gives the manifest. What is wrong is returned; "": nothing.
class TraceFiles {
 public:
  TraceFiles(const std::string& folder, bool durable) : folder_(folder), durable_(durable) {}

  const std::vector<Step>& written() const { return written_; }  // without their values
  bool has_steps() const { return !written_.empty() || !pending_.empty(); }

  // The folder must not hold anything yet.
  std::string make_folder() {
    if (durable_ && !LOCKSTEP_CAN_SYNC) return "durable: this system cannot sync files";
    std::error_code problem;
    for (std::filesystem::path missing = folder_;
         !missing.empty() && !std::filesystem::exists(missing, problem);
         missing = missing.parent_path())
      made_.push_back(missing);
    std::filesystem::create_directories(folder_, problem);
    if (problem) return "cannot make the folder: " + problem.message();
    if (!std::filesystem::is_empty(folder_, problem) || problem)
      return "the folder is not empty; a trace is never written over";
    return "";
  }

  // The first manifest: of several recorders that found the folder empty, one creates it.
  std::string take_folder(const std::string& text) {
    PartFile file;
    taken_ = file.open_new(path("manifest.json")) && file.write(text) && file.publish_new(durable_);
    if (!taken_ && errno == EEXIST)
      return "another recording has begun in the folder; a trace is never written over";
    if (!taken_) return cannot_write("manifest.json");
    if (!durable_) return "";
    if (!sync_folder(folder_.string())) return cannot_write("the folder");
    for (const std::filesystem::path& made : made_)
      if (!sync_folder(made.parent_path().string())) return cannot_write("the folder");
    return "";
  }

  // After a failure. Where no step is on the disk, nothing is left, and no folder that was made.
  void give_up() {
    large_.drop();
    if (!written_.empty()) return;
    std::error_code ignored;  // what is not empty stays
    if (taken_) std::filesystem::remove(path("manifest.json"), ignored);
    for (const std::filesystem::path& made : made_) std::filesystem::remove(made, ignored);
    taken_ = false;
    made_.clear();
  }

  std::string write_manifest(const std::string& text) {
    PartFile file;
    const bool done = file.open(path("manifest.json")) && file.write(text) && publish(file);
    return done ? "" : cannot_write("manifest.json");
  }

  // Takes a step that is whole. Small ones wait for others, but not long; the first does not wait,
  // so that a process that dies early leaves something. `flushed`: written() has grown.
  std::string add(Step step, bool* flushed) {
    *flushed = true;
    if (large_.is_open()) return add_large(std::move(step));
    pending_bytes_ += step.bytes + kHeadBytes * static_cast<int64_t>(step.values.size());
    pending_.push_back(std::move(step));
    const auto waited = std::chrono::steady_clock::now() - last_flush_;
    if (pending_bytes_ >= kShardBytes || waited >= kPatience || written_.empty()) return flush();
    *flushed = false;
    return "";
  }

  // A value of a step that is too large to be kept in memory goes to the disk before its step ends;
  // nothing may wait then.
  std::string spill(Step& step, size_t slot) {
    if (!large_.is_open()) {
      step.shard = next_shard();
      if (!large_.open(path(step.shard)) || !large_.seek(kLargeHeadBytes))
        return cannot_write(step.shard);
    }
    Stored& value = step.values[slot];
    if (!large_.write(value.data.get(), value.bytes)) return cannot_write(step.shard);
    value.data.reset();
    step.on_disk.push_back(slot);
    return "";
  }

  bool has_large() const { return large_.is_open(); }
  void drop_large() { large_.drop(); }

  // What waits goes to the disk.
  std::string flush() {
    last_flush_ = std::chrono::steady_clock::now();
    if (pending_.empty()) return "";
    const std::string shard = next_shard();
    std::vector<Entry> entries;
    for (const Step& step : pending_)
      for (const Stored& value : step.values) entries.push_back({step.index, &value});
    PartFile file;
    if (!file.open(path(shard)) || !file.write(head(entries, 0))) return cannot_write(shard);
    for (const Entry& entry : entries)
      if (!file.write(entry.value->data.get(), entry.value->bytes)) return cannot_write(shard);
    if (!publish(file)) return cannot_write(shard);
    for (Step& step : pending_) {
      step.shard = shard;
      step.values.clear();
      written_.push_back(std::move(step));
    }
    pending_.clear();
    pending_bytes_ = 0;
    return "";
  }

 private:
  static constexpr int64_t kShardBytes = 16 << 20;
  static constexpr int64_t kHeadBytes = 128;  // that describe a value, roughly
  static constexpr std::chrono::seconds kPatience{1};
  static constexpr size_t kLargeHeadBytes = 4 << 20;  // room before the data of a large step

  struct Entry {
    int64_t step;
    const Stored* value;
  };

  // What a safetensors file begins with; `room`: how long it is made, if it fits.
  static std::string head(const std::vector<Entry>& entries, size_t room) {
    std::string text = "{";
    size_t offset = 0;
    for (const Entry& entry : entries) {
      const size_t end = offset + entry.value->bytes;
      text += text.size() > 1 ? "," : "";
      text += json_text(std::to_string(entry.step) + "/" + entry.value->name);
      text += std::string(":{\"dtype\":\"") + find_type(entry.value->type)->stored;
      text += "\",\"shape\":" + json_array(entry.value->shape);
      text += ",\"data_offsets\":" + json_array(std::vector<size_t>{offset, end}) + "}";
      offset = end;
    }
    text += '}';
    // Data starts at a multiple of 8.
    text.resize(room >= text.size() + 8 ? room - 8 : (text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    std::string out(8, '\0');
    std::memcpy(&out[0], &length, 8);
    return out + text;
  }

  std::string add_large(Step step) {
    std::vector<Entry> entries;
    for (const size_t slot : step.on_disk) entries.push_back({step.index, &step.values[slot]});
    const std::string text = head(entries, kLargeHeadBytes);
    if (text.size() != kLargeHeadBytes) return "a step has too many values";
    if (!large_.seek(0) || !large_.write(text) || !publish(large_)) return cannot_write(step.shard);
    step.values.clear();
    written_.push_back(std::move(step));
    return "";
  }

  // Durable: nothing is named by the manifest, on the disk, before it is there itself.
  bool publish(PartFile& file) {
    return file.publish(durable_) && (!durable_ || sync_folder(folder_.string()));
  }

  static std::string cannot_write(const std::string& name) {
    const int problem = errno;
    return "cannot write " + name + ": " + std::generic_category().message(problem);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string next_shard() {
    const std::string digits = std::to_string(shards_++);
    return std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits + ".safetensors";
  }

  const std::filesystem::path folder_;
  const bool durable_;
  std::vector<std::filesystem::path> made_;  // folders that were not there, the innermost first
  bool taken_ = false;                       // the manifest is this recorder's
  std::vector<Step> written_;
  std::vector<Step> pending_;  // whole, not yet on the disk
  int64_t pending_bytes_ = 0;
  int64_t shards_ = 0;
  PartFile large_;
  std::chrono::steady_clock::time_point last_flush_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep::detail
