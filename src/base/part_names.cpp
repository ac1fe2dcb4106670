#include "base/part_names.h"

#include <array>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstring>
#include <utility>

#include <unistd.h>

namespace lockstep {
namespace {

enum class SlotState { kFree, kFilling, kHeld };

// Plain memory that is there from the start: a signal handler may neither lock nor allocate.
struct Slot {
  std::atomic<SlotState> state{SlotState::kFree};
  std::array<char, PATH_MAX> path{};
};

std::array<Slot, 16> slots;

void on_ending_signal(int signal) {
  for (Slot& slot : slots)
    if (slot.state == SlotState::kHeld) ::unlink(slot.path.data());
  std::signal(signal, SIG_DFL);  // so that whoever waits for the program sees what ended it
  ::raise(signal);
}

}  // namespace

PartName::PartName(const std::string& path) {
  if (path.size() >= PATH_MAX) return;
  for (size_t i = 0; i < slots.size(); ++i) {
    SlotState free = SlotState::kFree;
    if (!slots[i].state.compare_exchange_strong(free, SlotState::kFilling)) continue;
    std::memcpy(slots[i].path.data(), path.c_str(), path.size() + 1);
    slots[i].state = SlotState::kHeld;
    slot_ = static_cast<int>(i);
    return;
  }
}

PartName::PartName(PartName&& other) noexcept : slot_(std::exchange(other.slot_, -1)) {}

PartName& PartName::operator=(PartName&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

PartName::~PartName() {
  if (slot_ >= 0) slots[static_cast<size_t>(slot_)].state = SlotState::kFree;
}

void remove_parts_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, on_ending_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
}

}  // namespace lockstep
