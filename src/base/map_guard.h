// A file that gets shorter while it is mapped: reading what is gone would end the program with
// SIGBUS. Here it reads as zeros instead, and everybody can ask whether that has happened.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

class MapGuard {
 public:
  MapGuard() = default;
  explicit MapGuard(std::span<const std::byte> map);  // of a file, from its start
  MapGuard(MapGuard&& other) noexcept;
  MapGuard& operator=(MapGuard&& other) noexcept;
  ~MapGuard();

  // Some of it was read when it was gone. Those bytes are zeros from then on.
  bool cut() const;

 private:
  int slot_ = -1;  // none: the table is full, and such a read ends the program
};

// Whether this has happened to any file of this program.
bool any_map_was_cut();

}  // namespace lockstep
