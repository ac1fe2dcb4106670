// Options of a command, declared by what their value is (value_kinds.h). Every option with a value
// is declared through here, so that each is checked, completed and explained in the same words.
#pragma once

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/value_kinds.h"

namespace lockstep::cli {

// The value as text. One of a closed kind gets the spelling of the kind's own word.
CLI::Option* add_value(CLI::App& app, const std::string& names, std::string& variable,
                       const ValueKind& kind, const std::string& help);

// The same where it matters whether it was given, since it may be empty.
CLI::Option* add_value(CLI::App& app, const std::string& names,
                       std::optional<std::string>& variable, const ValueKind& kind,
                       const std::string& help);

// May be given several times; a position takes all that is left.
CLI::Option* add_values(CLI::App& app, const std::string& names, std::vector<std::string>& variable,
                        const ValueKind& kind, const std::string& help);

template <class T>
struct NumberRange {
  T least = std::numeric_limits<T>::lowest();
  T most = std::numeric_limits<T>::max();
  bool above = false;  // `least` itself is too small
};

// Digits, all of the text, within the range; not NaN, not infinite.
Result<int64_t> parse_number(const std::string& text, NumberRange<int64_t> range);
Result<uint64_t> parse_number(const std::string& text, NumberRange<uint64_t> range);
Result<double> parse_number(const std::string& text, NumberRange<double> range);

namespace detail {

template <class T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, double,
                                std::conditional_t<std::is_same_v<T, uint64_t>, uint64_t, int64_t>>;

CLI::Option* add_checked(CLI::App& app, const std::string& names, const ValueKind& kind,
                         const std::string& help,
                         std::function<Result<void>(const std::string&)> take);

}  // namespace detail

// Only numbers of the range that the variable can hold.
template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& names, T& variable,
                        NumberRange<detail::Wide<std::type_identity_t<T>>> range,
                        const std::string& help) {
  using Wide = detail::Wide<T>;
  range.least = std::max(range.least, static_cast<Wide>(std::numeric_limits<T>::lowest()));
  range.most = std::min(range.most, static_cast<Wide>(std::numeric_limits<T>::max()));
  const ValueKind& kind = std::is_floating_point_v<T> ? kRealNumber : kWholeNumber;
  return detail::add_checked(app, names, kind, help,
                             [&variable, range](const std::string& text) -> Result<void> {
                               LS_TRY(const Wide value, parse_number(text, range));
                               variable = static_cast<T>(value);
                               return {};
                             });
}

// Shows the default of a number in the help.
template <class T>
void show_default(CLI::Option* option, const T& value) {
  option->default_str(fmt::format("{}", value));
}

// -t: more threads than cores are allowed, with a warning.
CLI::Option* add_threads(CLI::App& app, int& threads);

}  // namespace lockstep::cli
