// Vectors of what a step computes with. Large ones lie in huge pages, as weights do: which small
// pages a process gets decides how often what it needs falls out of a cache, so that the speed of a
// prompt would differ from one start of the program to the next.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include <sys/mman.h>

namespace lockstep::exec::cpu {

template <class T>
struct HugePages {
  using value_type = T;
  static constexpr size_t kPage = size_t{2} << 20, kLine = 64;
  static constexpr size_t kLarge = kPage / 4;  // bytes that are worth a page

  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}

  static bool large(size_t count) { return count >= kLarge / sizeof(T); }

  T* allocate(size_t count) {
    if (count > size_t{1} << 60) throw std::bad_alloc();
    if (!large(count))
      return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{kLine}));
    const size_t bytes = (count * sizeof(T) + kPage - 1) / kPage * kPage;
    void* memory = ::operator new (bytes, std::align_val_t{kPage});
    madvise(memory, bytes, MADV_HUGEPAGE);  // the system may refuse; nothing depends on it
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    ::operator delete (memory, std::align_val_t{large(count) ? kPage : kLine});
  }

  bool operator==(const HugePages&) const = default;
};

template <class T>
using HugeVector = std::vector<T, HugePages<T>>;

}  // namespace lockstep::exec::cpu
