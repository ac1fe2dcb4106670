// Downloads a model into the cache: resumed where it broke off, checked, and under its final name
// only when it is whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace lockstep::models {

struct PullSource {
  std::string name;        // the file becomes FOLDER/NAME.gguf
  std::string url;         // http or https
  int64_t size_bytes = 0;  // of the model; 0: not known
  std::string sha256;      // of the model, lower case; "": not known
  std::string member;      // where the URL is a zip archive: the model in it; "": the model itself
};

struct PullOptions {
  std::string folder;      // made where it is missing
  int retries = 4;         // after a broken connection that brought next to nothing new
  int stall_seconds = 30;  // below 1 kB/s for so long, the connection counts as broken
  int64_t most_bytes = 0;  // of a file whose size nobody says; 0: any
  const std::atomic<bool>* interrupted = nullptr;  // set: stop soon; may be null
};

struct Pulled {
  std::string path;
  bool was_there = false;  // whole already; nothing was fetched
  bool hash_known = false;
  std::string sha256;  // of the file
};

// What NAME may be: letters, digits and . _ - , not beginning with a dot.
bool is_model_name(const std::string& name);

// Logs to standard error. After a failure, what is worth keeping stays in FOLDER/NAME.gguf.part.
Result<Pulled> pull(const PullSource& source, const PullOptions& options);

}  // namespace lockstep::models
