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

}  // namespace lockstep
