// Where the program's files lie: those that came with it, and those that it keeps for the user.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

// ($XDG_CACHE_HOME or ~/.cache)/lockstep; an error where neither variable is an absolute path.
Result<std::string> cache_root();

// Where a folder of that name may have come with the program: in the source tree, or installed.
// They need not exist.
std::vector<std::string> shipped_folders(std::string_view name);

}  // namespace lockstep
