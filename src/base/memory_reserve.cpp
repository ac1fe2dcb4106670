#include "base/memory_reserve.h"

#include <atomic>
#include <cstddef>
#include <new>

namespace lockstep {
namespace {

constexpr size_t kForAll = size_t{4} << 20;
constexpr size_t kForOne = size_t{1} << 20;
constexpr size_t kLeastPart = 4;  // of each of them, where there is no more

std::atomic<void*> for_all{nullptr};
std::atomic<void*> for_one{nullptr};
thread_local bool favoured = false;
thread_local bool holding = false;  // one part is not freed to get the other

bool release(std::atomic<void*>& held) {
  void* const memory = held.exchange(nullptr);
  ::operator delete(memory);
  return memory != nullptr;
}

bool hold(std::atomic<void*>& held, size_t bytes) {
  if (held != nullptr) return true;
  void* memory = nullptr;
  for (size_t size = bytes; memory == nullptr && size >= bytes / kLeastPart; size /= 2)
    memory = ::operator new(size, std::nothrow);
  void* nothing = nullptr;
  if (!held.compare_exchange_strong(nothing, memory)) ::operator delete(memory);
  return held != nullptr;
}

void on_no_memory() {
  if (!holding && (release(for_all) || (favoured && release(for_one)))) return;
  throw std::bad_alloc();
}

}  // namespace

bool hold_memory_reserve() noexcept {
  std::set_new_handler(on_no_memory);
  holding = true;
  const bool held = hold(for_one, kForOne) && hold(for_all, kForAll);
  holding = false;
  return held;
}

void favour_this_thread() noexcept {
  favoured = true;
}

}  // namespace lockstep
