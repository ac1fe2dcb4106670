// Vectors that begin at a line of the cache, so that no register's worth of numbers lies across
// two.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace lockstep {

template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <class U>
  explicit LineAllocator(const LineAllocator<U>&) {}

  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
  void deallocate(T* numbers, size_t) { ::operator delete(numbers, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
};

template <class T>
using AlignedVector = std::vector<T, LineAllocator<T>>;

}  // namespace lockstep
