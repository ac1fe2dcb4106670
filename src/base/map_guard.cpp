#include "base/map_guard.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

namespace lockstep {
namespace {

// There from the start: a signal handler may neither lock nor allocate.
struct GuardedMap {
  std::atomic<uintptr_t> begin{0};  // 0: nobody's; 1: being filled
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> cut{false};
};

std::array<GuardedMap, 1024> guarded_maps;
std::atomic<bool> any_cut{false};
struct sigaction action_before {};

// Puts zeros in the place of the lost page and all behind it, which is lost too; the read then goes
// on. A fault that is none of ours gets what it would have got without us.
void on_bus_error(int, siginfo_t* info, void*) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto place = reinterpret_cast<uintptr_t>(info->si_addr);
  for (GuardedMap& map : guarded_maps) {
    const uintptr_t end = map.end;
    if (map.begin <= 1 || place < map.begin || place >= end) continue;
    const uintptr_t first = place / page * page;
    if (::mmap(reinterpret_cast<void*>(first), end - first, PROT_READ,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
      break;
    map.cut = true;
    any_cut = true;
    return;
  }
  ::sigaction(SIGBUS, &action_before, nullptr);
}

bool install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  return ::sigaction(SIGBUS, &action, &action_before) == 0;
}

}  // namespace

MapGuard::MapGuard(std::span<const std::byte> map) {
  static const bool installed = install_handler();
  if (!installed || map.empty()) return;
  for (size_t i = 0; i < guarded_maps.size(); ++i) {
    GuardedMap& entry = guarded_maps[i];
    uintptr_t nobody = 0;
    if (!entry.begin.compare_exchange_strong(nobody, 1)) continue;
    entry.cut = false;
    entry.end = reinterpret_cast<uintptr_t>(map.data()) + map.size();
    entry.begin = reinterpret_cast<uintptr_t>(map.data());
    slot_ = static_cast<int>(i);
    return;
  }
}

MapGuard::MapGuard(MapGuard&& other) noexcept : slot_(std::exchange(other.slot_, -1)) {}

MapGuard& MapGuard::operator=(MapGuard&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

MapGuard::~MapGuard() {
  if (slot_ >= 0) guarded_maps[static_cast<size_t>(slot_)].begin = 0;
}

bool MapGuard::cut() const {
  return slot_ >= 0 && guarded_maps[static_cast<size_t>(slot_)].cut;
}

bool any_map_was_cut() {
  return any_cut;
}

}  // namespace lockstep
