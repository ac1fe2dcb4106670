// Memory that recorded values pass through on their way to the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

namespace lockstep::trace {

using Buffer = std::vector<std::byte>;

// Keeps buffers for the next step, whose values have the same sizes: fresh memory costs the kernel
// more time than the copy into it. For use by several threads.
class BufferPool {
 public:
  // A copy of `bytes`.
  Buffer copy(std::span<const std::byte> bytes);
  // The memory may be used again.
  void give_back(Buffer buffer);

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<Buffer>> spare_;  // by size
  size_t spare_bytes_ = 0;
};

}  // namespace lockstep::trace
