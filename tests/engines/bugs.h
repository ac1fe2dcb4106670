// Test-only: the bugs that engines have, each as a change of one op or a quirk of one value.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine.h"
#include "op/program.h"

namespace lockstep::engines {

// A program with one bug in it.
struct Patient {
  op::Program program;
  Quirk quirk;
  std::deque<std::vector<float>> weights;  // altered ones, which the program points to

  // The op that computes a value ("q" in layer 1), or null. `root` goes on to the projection where
  // the value is a slice, a scaled or a normalized form of it.
  op::Op* find(const std::string& name, int64_t layer);
  op::Op* root(const std::string& name, int64_t layer);
  op::Weight keep(const op::Weight& like, std::vector<float> values, int64_t rows, int64_t columns);
};

struct Bug {
  std::string name;
  // Makes the bug in a layer; tells the value that is wrong first, or nothing where the
  // architecture has no such thing. `position`: for what happens at one position only.
  std::function<std::optional<op::ValueId>(Patient&, int64_t layer, int64_t position)> make;
  bool outside = false;  // not in a layer
  bool one_row = false;  // only `position` is wrong
  bool subtle = false;   // may drown in the rounding of several ops; shows where each is recorded
  bool tiny = false;     // may be less than rounding itself, in rows that are large
};

std::span<const Bug> bugs();

}  // namespace lockstep::engines
