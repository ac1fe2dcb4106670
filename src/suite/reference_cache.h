// Reference traces that were made before, by this machine or another one that has the same folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "trace/trace.h"

namespace lockstep::suite {

// To be raised when an executor of ours computes other bits than before: what was made by the old
// one is then not found any more.
inline constexpr int kNumerics = 1;

class ReferenceCache {
 public:
  // `most_bytes`: beyond that the entries go that were not used for longest.
  ReferenceCache(std::string folder, int64_t most_bytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  // The trace of that key. One that is not there, or damaged, is made: `make` writes it to a
  // folder. An entry has its name only when it is whole; of several processes that make it, one is
  // first.
  Result<trace::Trace> get(const std::string& key,
                           const std::function<Result<void>(const std::string&)>& make);

 private:
  void keep_to_limit(int64_t added);

  std::string folder_;
  int64_t most_bytes_;
  int64_t total_ = -1;  // bytes that there are, about; negative: nobody has counted yet
};

}  // namespace lockstep::suite
