#include "trace/buffers.h"

#include <algorithm>

namespace lockstep::trace {
namespace {

// About what a shard gathers: more is never under way for long.
constexpr size_t kSpareBytes = 32 << 20;

}  // namespace

Buffer BufferPool::copy(std::span<const std::byte> bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = spare_.find(bytes.size());
        found != spare_.end() && !found->second.empty()) {
      Buffer buffer = std::move(found->second.back());
      found->second.pop_back();
      spare_bytes_ -= buffer.size();
      std::ranges::copy(bytes, buffer.begin());
      return buffer;
    }
  }
  return {bytes.begin(), bytes.end()};
}

void BufferPool::give_back(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  if (spare_bytes_ + buffer.size() > kSpareBytes) {
    // Sizes that are no longer asked for (of a prompt's steps) make room for those that are.
    spare_.clear();
    spare_bytes_ = 0;
  }
  if (buffer.size() > kSpareBytes) return;
  spare_bytes_ += buffer.size();
  spare_[buffer.size()].push_back(std::move(buffer));
}

}  // namespace lockstep::trace
