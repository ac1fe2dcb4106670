// The rope extensions of a forged model, as written on the command line.
#pragma once

#include <string_view>

#include "base/result.h"
#include "forge/spec.h"

namespace lockstep::cli {

inline constexpr const char* kRopeFactorForms =
    "none, llama3[:FACTOR[:CONTEXT]], long-short:CONTEXT";
inline constexpr const char* kRopeScalingForms =
    "none, linear:FACTOR, yarn:FACTOR:CONTEXT[:SHARPENING]";

Result<forge::RopeFactors> parse_rope_factors(std::string_view text);
Result<forge::RopeScaling> parse_rope_scaling(std::string_view text);

}  // namespace lockstep::cli
