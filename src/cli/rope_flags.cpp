#include "cli/rope_flags.h"

#include <charconv>
#include <vector>

namespace lockstep::cli {
namespace {

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t colon = text.find(':');
    parts.push_back(text.substr(0, colon));
    if (colon == text.npos) return parts;
    text.remove_prefix(colon + 1);
  }
}

// The whole text as a number.
template <class T>
bool parse_whole(std::string_view text, T& value) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<forge::RopeFactors> parse_rope_factors(std::string_view text) {
  using Kind = forge::RopeFactors::Kind;
  const std::vector<std::string_view> parts = split(text);
  const size_t count = parts.size();
  forge::RopeFactors factors;
  if (text == "none") return factors;
  bool good = false;
  if (parts[0] == "llama3") {
    factors.kind = Kind::kShared;
    good = count <= 3 && (count < 2 || parse_whole(parts[1], factors.factor)) &&
           (count < 3 || parse_whole(parts[2], factors.original_context));
  } else if (parts[0] == "long-short") {
    factors.kind = Kind::kLongShort;
    good = count == 2 && parse_whole(parts[1], factors.original_context);
  }
  if (!good) return error("--rope-factors: found '{}', expected {}", text, kRopeFactorForms);
  return factors;
}

Result<forge::RopeScaling> parse_rope_scaling(std::string_view text) {
  using Kind = forge::RopeScaling::Kind;
  const std::vector<std::string_view> parts = split(text);
  forge::RopeScaling scaling;
  if (text == "none") return scaling;
  bool good = false;
  if (parts[0] == "linear") {
    scaling.kind = Kind::kLinear;
    good = parts.size() == 2 && parse_whole(parts[1], scaling.factor);
  } else if (parts[0] == "yarn") {
    scaling.kind = Kind::kYarn;
    good = (parts.size() == 3 || parts.size() == 4) && parse_whole(parts[1], scaling.factor) &&
           parse_whole(parts[2], scaling.original_context) &&
           (parts.size() == 3 || parse_whole(parts[3], scaling.sharpening));
  }
  if (!good) return error("--rope-scaling: found '{}', expected {}", text, kRopeScalingForms);
  return scaling;
}

}  // namespace lockstep::cli
