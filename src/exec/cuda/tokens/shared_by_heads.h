// What a kernel takes once for the heads of q and those of k, whose ops each have their own.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep::exec::cuda {

struct Rotation {
  const float* cosines = nullptr;
  const float* sines = nullptr;
  int64_t pairs = 0;
  bool adjacent = false;

  bool operator==(const Rotation&) const = default;
};

// Whether `value` is what was taken before, if anything was.
template <class T>
bool take_shared(std::optional<T>& taken, const T& value) {
  if (taken && *taken != value) return false;
  taken = value;
  return true;
}

}  // namespace lockstep::exec::cuda
