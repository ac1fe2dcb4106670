// Whether a model file is whole: its size, its hash, and that it is a GGUF file to its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace lockstep::models {

struct Expected {
  int64_t size_bytes = 0;  // 0: not known
  std::string sha256;      // lower case; "": not known
};

enum class FileVerdict {
  kWhole,
  kWrongBytes,   // other bytes than expected, or no GGUF file
  kUnreadable,   // exactly the expected bytes, but the GGUF reader refuses them
  kInterrupted,  // not known
};

struct FileCheck {
  FileVerdict verdict = FileVerdict::kWrongBytes;
  std::string problem;  // empty where whole
  std::string sha256;   // of the file; empty where it was not read to the end
  bool ok() const { return verdict == FileVerdict::kWhole; }
};

// `interrupted` may be null.
FileCheck check_file(const std::string& path, const Expected& expected,
                     const std::atomic<bool>* interrupted);

}  // namespace lockstep::models
