// Lists of numbers on the command line: "0,5,10-20", "1,15043,3186".
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep::cli {

// Ascending, each once; a range includes both ends.
Result<std::vector<int64_t>> parse_number_list(std::string_view text);

// In their order. Spaces may stand around the commas, or instead of them.
Result<std::vector<int32_t>> parse_token_ids(std::string_view text);

// How many tokens to measure with: 0 to 2^30.
Result<std::vector<int64_t>> parse_counts(std::string_view text);

// "2/8": the number of a part, from 1, and how many there are.
Result<std::pair<int64_t, int64_t>> parse_part(std::string_view text);

}  // namespace lockstep::cli
