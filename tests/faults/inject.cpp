#include "faults/inject.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

#include <dlfcn.h>
#include <pthread.h>

namespace lockstep::faults {
namespace {

constexpr int64_t kLarge = 4096;
constexpr int64_t kSetAside = 1 << 20;

void free_what_is_set_aside() {
  try {
    for (;;)
      if (const std::new_handler handler = std::get_new_handler())
        handler();
      else
        return;
  } catch (const std::bad_alloc&) {
  }
}

struct Tap {
  std::atomic<bool> armed{false};
  std::atomic<int64_t> left{0};  // until the first that is refused
  std::atomic<Refuse> what{Refuse::kOne};
  std::atomic<bool> refused{false};
  std::atomic<int64_t> set_aside{0};

  bool takes(size_t bytes = 0) {
    if (!armed.load(std::memory_order_relaxed)) return true;
    const int64_t before = left.fetch_sub(1);
    if (before > 1 || (before < 1 && what == Refuse::kOne)) return true;
    const bool first = !refused.exchange(true);
    if (what != Refuse::kLargeFrom) return false;
    if (first) free_what_is_set_aside();
    const auto size = static_cast<int64_t>(bytes);
    return size < kLarge && set_aside.fetch_sub(size) >= size;
  }
  void set(int64_t number, Refuse kind) {
    what = kind;
    refused = false;
    set_aside = kSetAside;
    left = number;
    armed = true;
  }
};

Tap memory, threads;
std::atomic<int64_t> live{0};
std::atomic<bool> json_granted{false};

void* allocate(size_t bytes, size_t alignment) {
  if (!(json_granted && bytes % 16 == 0) && !memory.takes(bytes)) return nullptr;
  const size_t size = bytes == 0 ? 1 : bytes;
  void* data = alignment == 0
                   ? std::malloc(size)
                   : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (data != nullptr) live.fetch_add(1, std::memory_order_relaxed);
  return data;
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* data = allocate(bytes, alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

void release(void* data) {
  if (data != nullptr) live.fetch_sub(1, std::memory_order_relaxed);
  std::free(data);
}

}  // namespace

void refuse_memory(int64_t number, Refuse what) {
  memory.set(number, what);
}
void refuse_threads(int64_t number, Refuse what) {
  threads.set(number, what);
}
int64_t next_point(int64_t number) {
  static const bool slow = std::getenv("LOCKSTEP_SLOW") != nullptr;
  return number + 1 + number / (slow ? 8 : 2);
}
void grant_json(bool always) {
  json_granted = always;
}
bool grant() {
  memory.armed = threads.armed = false;
  return memory.refused.exchange(false) | threads.refused.exchange(false);
}
int64_t live_allocations() {
  return live;
}

}  // namespace lockstep::faults

namespace faults = lockstep::faults;
using Alignment = std::align_val_t;

void* operator new(size_t bytes) {
  return faults::allocate_or_throw(bytes, 0);
}
void* operator new[](size_t bytes) {
  return faults::allocate_or_throw(bytes, 0);
}
void* operator new(size_t bytes, Alignment alignment) {
  return faults::allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, Alignment alignment) {
  return faults::allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return faults::allocate(bytes, 0);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return faults::allocate(bytes, 0);
}
void operator delete(void* data) noexcept {
  faults::release(data);
}
void operator delete[](void* data) noexcept {
  faults::release(data);
}
void operator delete(void* data, size_t) noexcept {
  faults::release(data);
}
void operator delete[](void* data, size_t) noexcept {
  faults::release(data);
}
void operator delete(void* data, Alignment) noexcept {
  faults::release(data);
}
void operator delete[](void* data, Alignment) noexcept {
  faults::release(data);
}
void operator delete(void* data, size_t, Alignment) noexcept {
  faults::release(data);
}
void operator delete[](void* data, size_t, Alignment) noexcept {
  faults::release(data);
}
void operator delete(void* data, const std::nothrow_t&) noexcept {
  faults::release(data);
}
void operator delete[](void* data, const std::nothrow_t&) noexcept {
  faults::release(data);
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (!faults::threads.takes()) return EAGAIN;
  return real(thread, attributes, start, argument);
}
