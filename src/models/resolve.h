// From what a user types to one of several names: aliases, letter case, left-out precisions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::models {

inline constexpr const char* kDefaultModel = "haiku";

// Which of `names` is meant: the name itself in any letter case, or its Q4_K_M file where only the
// precision was left out ("haiku-qwen2" is "haiku-qwen2-q4_k_m"), or the next best precision where
// there is no Q4_K_M. "haiku" is "haiku-llama".
std::optional<size_t> resolve(std::string_view name, std::span<const std::string> names);

// At most three of `names` that `name` may be a slip of, nearest first.
std::vector<std::string> near_models(std::string_view name, std::span<const std::string> names);

}  // namespace lockstep::models
