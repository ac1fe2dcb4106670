// The numbers that an op has, which an engine may have otherwise.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "doctor/hypothesis.h"

namespace lockstep::doctor {

// One positive number of an op: where to look for it, and what is altered by it.
struct Quantity {
  std::string cause;
  std::function<std::string(double)> text;
  std::string fix;
  std::vector<Parameter> more = {};  // besides the value
  const char* parameter = "value";
  bool negative = false;  // the number is the one that is told with a minus
  bool rare = false;      // not looked for in a stretch, where every try is a replay of all of it
  std::function<Alteration(double)> alter;
  int rank = 0;
  double low;  // of the logarithm, to base 10
  double high;
  int steps;
  double own = 0;  // the model's; 0: it has none

  Hypothesis hypothesis(double value) const;
};

// `several`: the number is to hold for several ops of this kind together.
std::vector<Quantity> quantities_of(const op::Op& op, bool several);

}  // namespace lockstep::doctor
