// Names of files in the making. A signal that ends the program (Ctrl-C, SIGTERM, SIGHUP) removes
// them first, which no destructor would.
#pragma once

#include <string>

namespace lockstep {

// Holds a name as long as it lives, and then lets go of it without touching the file.
class PartName {
 public:
  PartName() = default;
  explicit PartName(const std::string& path);
  PartName(PartName&& other) noexcept;
  PartName& operator=(PartName&& other) noexcept;
  ~PartName();

 private:
  int slot_ = -1;  // none: the table is full or the name too long
};

// To be called once at the start of the program. Signals that are ignored stay so, and commands may
// set handlers of their own.
void remove_parts_on_signals();

}  // namespace lockstep
