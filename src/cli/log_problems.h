// What is wrong with a log's lines, as every command that reads one says it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "trace/jsonl.h"

namespace lockstep::cli {

// The first ones on stderr: nobody reads more on a terminal. `all`: which flags show all of them.
void print_problems(const std::vector<trace::JsonlProblem>& problems, const std::string& path,
                    std::string_view all);

nlohmann::ordered_json problems_json(const std::vector<trace::JsonlProblem>& problems);

}  // namespace lockstep::cli
