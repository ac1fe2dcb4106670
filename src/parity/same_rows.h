// Where both sides recorded the same bits, the judgement of one is that of the other.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "parity/scope.h"

namespace lockstep::parity {

class SameRows {
 public:
  // Keeps both. `used`: the checkpoints that are read (trace/checkpoints.h).
  SameRows(const SideScope& a, const SideScope& b, std::string_view used);

  // Whether a judgement of this value finds the same on both sides: by the same forward pass, in
  // the same arithmetic, with the same numbers of the value itself and of all that goes into it.
  // False where one of these was not recorded at some position.
  bool of(op::ValueId id);

 private:
  enum class Recorded { kOtherwise, kAlike, kAlikeEverywhere };
  Recorded recorded(const std::string& name);
  bool is_whole_and_alike(op::ValueId id);

  const SideScope& a_;
  const SideScope& b_;
  const std::string used_;
  const bool alike_;                       // in all that is not recorded values
  std::map<std::string, Recorded> names_;  // those that were looked at
};

}  // namespace lockstep::parity
