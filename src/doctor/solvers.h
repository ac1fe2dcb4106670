// Hypotheses with numbers that only the trace has: found from some wrong rows, and judged at all.
#pragma once

#include <functional>
#include <vector>

#include "doctor/examination.h"

namespace lockstep::doctor {

// On one op of the stretch, or several of a kind that share the number.
std::vector<Hypothesis> solve(Examination& examination, std::span<const size_t> ops);

// From the recorded numbers themselves: rows and columns that are those of other places, a factor,
// a limit. Of a checkpoint whose op stands alone.
std::vector<Hypothesis> match(Examination& examination);

// What can be seen of an error that nothing explains, a sentence; empty: nothing.
std::string describe_error(Examination& examination);

// The argument in [low, high] with the least value, by a grid of `steps` and then by so many golden
// sections.
double minimize(const std::function<double(double)>& f, double low, double high, int steps,
                int sections);
// The number with the fewest digits that is as good.
double shortest(const std::function<double(double)>& f, double found);

}  // namespace lockstep::doctor
