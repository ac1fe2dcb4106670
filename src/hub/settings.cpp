#include "hub/settings.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::hub {

Result<double> finite_number(const JsonReader& reader) {
  LS_TRY(const double number, reader.number());
  if (!(std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max())))
    return reader.wrong("a number that a float can hold");
  return number;
}

std::optional<double> Settings::otherwise(std::string_view key) const {
  if (is_null(key)) return std::nullopt;
  const auto found = std::ranges::find(family_.defaults, key, &Default::key);
  return found != family_.defaults.end() ? std::optional(found->value) : std::nullopt;
}

Result<std::optional<int64_t>> Settings::count(std::string_view key, int64_t least) const {
  if (has(key)) {
    LS_TRY(const int64_t found, at(key).integer(least, kLargestCount));
    return std::optional(found);
  }
  const std::optional<double> usual = otherwise(key);
  return usual ? std::optional(static_cast<int64_t>(*usual)) : std::nullopt;
}

Result<std::optional<double>> Settings::real(std::string_view key) const {
  if (!has(key)) return otherwise(key);
  LS_TRY(const double found, finite_number(at(key)));
  return std::optional(found);
}

Result<int64_t> Settings::needed_count(std::string_view key, int64_t most) const {
  if (!has(key)) {
    LS_TRY(const std::optional<int64_t> usual, count(key));
    if (usual) return *usual;
  }
  return at(key).integer(1, most);
}

}  // namespace lockstep::hub
