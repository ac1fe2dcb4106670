// "Did you mean ...": the names most like one that was not found.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// At most `most` of `names`, the likest first: those that contain `wanted`, and those that differ
// from it in few letters (a third of them at most). Empty where none is like it.
std::vector<std::string> near_names(std::string_view wanted, std::span<const std::string> names,
                                    size_t most = 3);

// For options and commands, where one slip is likely: those that begin with `wanted`, else those
// that fewest letters part from it (a third of them at most). At most three.
std::vector<std::string> nearest_names(std::string_view wanted, std::span<const std::string> names);

}  // namespace lockstep
