// Test-only: the bugs that engines have, each as a change of one op or a quirk of one value.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "doctor/alterations.h"
#include "engine.h"
#include "op/program.h"

namespace lockstep::engines {

// A program with bugs in it.
struct Patient {
  explicit Patient(const op::Program& program) : altered(program) {}

  doctor::Altered altered;
  std::vector<Quirk> quirks;  // one a value

  const op::Program& program() const { return altered.program(); }
  // The op that computes a value ("q" in layer 1), by index. `root` goes on to the projection where
  // the value is a slice, a scaled or a normalized form of it.
  std::optional<size_t> find(const std::string& name, int64_t layer) const;
  std::optional<size_t> root(const std::string& name, int64_t layer) const;
};

struct Bug {
  std::string name;
  std::string cause;  // by docs/diagnosis.md
  // Makes the bug in a layer; tells the value that is wrong first, or nothing where the
  // architecture has no such thing. `position`: for what happens at one position only.
  std::function<std::optional<op::ValueId>(Patient&, int64_t layer, int64_t position)> make;
  bool outside = false;  // not in a layer
  bool one_row = false;  // only `position` is wrong
  bool subtle = false;   // may drown in the rounding of several ops; shows where each is recorded
  bool tiny = false;     // may be less than rounding itself, in rows that are large
};

std::span<const Bug> bugs();

// A patient whose op that computes a value, named in full, is altered.
Patient altered(const op::Program& program, const std::string& value,
                const doctor::Alteration& alteration);
// The result at one position is that of the position before.
doctor::Alteration stale_at(int64_t position);

}  // namespace lockstep::engines
