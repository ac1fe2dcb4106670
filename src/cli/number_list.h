// Lists of numbers on the command line: "0,5,10-20".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::cli {

// Ascending, each once; a range includes both ends.
Result<std::vector<int64_t>> parse_number_list(std::string_view text);

}  // namespace lockstep::cli
