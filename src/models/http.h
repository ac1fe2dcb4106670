// One HTTP request (libcurl) that fills a PartFile, from where it ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "models/part_file.h"

namespace lockstep::models {

inline constexpr int64_t kLeastBytesASecond = 1000;

struct HttpRequest {
  std::string url;             // http or https; redirects are followed, from https only to https
  int64_t expected_bytes = 0;  // of the whole file; 0: unknown
  int64_t most_bytes = 0;      // where the server does not say the size either; 0: any
  int stall_seconds = 30;      // slower than kLeastBytesASecond for so long, it is given up
  const std::atomic<bool>* interrupted = nullptr;             // set: stop soon; may be null
  std::function<void(int64_t done, int64_t total)> on_bytes;  // total 0: unknown; may be empty
};

enum class HttpEnding {
  kWhole,   // all that the server has, as far as it says
  kRetry,   // broken off; asking again may go on from there
  kFailed,  // asking again will not help
};

struct HttpOutcome {
  HttpEnding ending = HttpEnding::kFailed;
  std::string problem;        // for people; empty where whole
  std::string stated_sha256;  // what the hub says that the file's hash is; "": nothing
};

// Bytes that are there already are kept where the server says that they are still the same file,
// and fetched again where it does not or cannot send ranges.
HttpOutcome http_fetch(const HttpRequest& request, PartFile& part);

}  // namespace lockstep::models
