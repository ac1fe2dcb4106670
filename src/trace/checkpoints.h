// Which values of a forward pass to record.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "op/program.h"

namespace lockstep::trace {

// The sets that have names.
std::span<const std::string_view> checkpoint_sets();

// `set` is logits, layers, ops or all (lockstep/detail/checkpoints.h), or names and globs separated
// by commas. A name that matches nothing is an error that says so. In the order of the program.
Result<std::vector<op::ValueId>> select_checkpoints(const op::Program& program,
                                                    std::string_view set);

// Whether a name is in such a set. Here `all` is every name there is.
bool in_checkpoints(std::string_view set, std::string_view name);

// The same for the names that a trace has, in their order.
Result<std::vector<std::string>> select_names(const std::vector<std::string>& names,
                                              std::string_view set);

// Whether a name matches a glob (*, ?).
bool glob_matches(std::string_view glob, std::string_view name);

}  // namespace lockstep::trace
