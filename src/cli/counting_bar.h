// A progress bar that begins when it is known how long it is.
#pragma once

#include <cstdint>
#include <optional>

#include "base/progress.h"

namespace lockstep::cli {

class CountingBar {
 public:
  CountingBar(const char* label, const char* unit) : label_(label), unit_(unit) {}
  void operator()(int64_t done, int64_t all) {
    if (!progress_) progress_.emplace(label_, all, unit_);
    progress_->advance(done - done_);
    done_ = done;
  }

 private:
  const char* label_;
  const char* unit_;
  int64_t done_ = 0;
  std::optional<Progress> progress_;
};

}  // namespace lockstep::cli
