// A file in the making: without a name where the file system can do that, else under another one
// beside its target, and under the target's name only when it is whole. Whatever goes wrong leaves
// nothing behind; only a kill that no program can catch leaves a file that had to have a name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/part_names.h"
#include "base/result.h"

namespace lockstep {

class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();  // removes what is not finished

  const std::string& path() const { return path_; }

  // Asks the file system for the room, so that a full disk shows before hours of work.
  Result<void> reserve(int64_t bytes);

  Result<void> write(std::span<const std::byte> bytes);
  Result<void> write_zeros(int64_t bytes);
  // At a place of its own, whatever write() has reached.
  Result<void> write_at(int64_t offset, std::span<const std::byte> bytes);

  // What is written so far, to the disk.
  Result<void> sync();
  // To the disk, then to its name.
  Result<void> finish();
  // To its name at once, and to the disk when the system gets to it: whole for every reader,
  // whatever becomes of this process, but not where the power fails.
  Result<void> publish();
  // The same where nothing has that name yet: of several at the same moment, one succeeds.
  Result<void> publish_new();

 private:
  OutputFile() = default;
  void open_unnamed();
  Result<void> open_named();
  Result<void> name_it();
  void set_temporary();
  Error failed(const char* what, int code) const;
  Result<void> write_all(std::span<const std::byte> bytes);
  Result<void> flush();

  std::string path_;
  std::string temporary_;  // the other name; empty where it has none
  PartName part_name_;     // of temporary_
  int fd_ = -1;
  std::vector<std::byte> buffer_;  // small writes are gathered here
};

// The names that are in a folder, to the disk: a file that was synced is found by them.
Result<void> sync_folder(const std::string& path);

// Makes a folder and those above it that are missing. `made`: which were, the innermost first, also
// where it fails. `durable`: their names are on the disk.
Result<void> make_folders(const std::string& path, bool durable, std::vector<std::string>& made);

}  // namespace lockstep
