#include "cli/options.h"

#include <cstdio>

#include "base/lower.h"
#include "base/notice.h"
#include "base/parallel.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

// The kind's own word where it is closed.
std::string spelled(const ValueKind& kind, const std::string& value) {
  if (kind.closed)
    for (const std::string& word : kind.words())
      if (ascii_lower(word) == ascii_lower(value)) return word;
  return value;
}

template <class T>
std::string expected_text(const NumberRange<T>& range) {
  using Limits = std::numeric_limits<T>;
  std::string text = std::is_floating_point_v<T> ? "a number" : "a whole number";
  const bool has_least = range.least > Limits::lowest() || std::is_same_v<T, uint64_t>;
  const bool has_most = range.most < Limits::max() || std::is_same_v<T, uint64_t>;
  if (range.above)
    text += fmt::format(" above {}{}", range.least,
                        has_most ? fmt::format(", at most {}", range.most) : "");
  else if (has_least && has_most)
    text += fmt::format(" from {} to {}", range.least, range.most);
  else if (has_least)
    text += fmt::format(" of {} or more", range.least);
  return text;
}

template <class T>
Result<T> parse(const std::string& text, const NumberRange<T>& range) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  bool good = problem == std::errc() && stop == end && value >= range.least &&
              value <= range.most && !(range.above && value == range.least);
  if constexpr (std::is_floating_point_v<T>) good = good && std::isfinite(value);
  if (good) return value;
  return error("found {}, expected {}",
               text.empty() ? "an empty text" : fmt::format("'{}'", printable(text, 100)),
               expected_text(range));
}

}  // namespace

Result<int64_t> parse_number(const std::string& text, NumberRange<int64_t> range) {
  return parse(text, range);
}

Result<uint64_t> parse_number(const std::string& text, NumberRange<uint64_t> range) {
  return parse(text, range);
}

Result<double> parse_number(const std::string& text, NumberRange<double> range) {
  return parse(text, range);
}

namespace detail {

CLI::Option* add_checked(CLI::App& app, const std::string& names, const ValueKind& kind,
                         const std::string& help,
                         std::function<Result<void>(const std::string&)> take) {
  const auto name = std::make_shared<std::string>();
  CLI::Option* option = app.add_option_function<std::string>(
      names,
      [name, take](const std::string& text) {
        if (const auto taken = take(text); !taken.ok())
          throw CLI::ValidationError(*name, taken.error().message);
      },
      help);
  *name = option->get_name();
  return option->type_name(kind.name);
}

}  // namespace detail

CLI::Option* add_value(CLI::App& app, const std::string& names, std::string& variable,
                       const ValueKind& kind, const std::string& help) {
  return detail::add_checked(app, names, kind, help,
                             [&variable, &kind](const std::string& text) -> Result<void> {
                               LS_TRY_VOID(check_value(kind, text));
                               variable = spelled(kind, text);
                               return {};
                             });
}

CLI::Option* add_value(CLI::App& app, const std::string& names,
                       std::optional<std::string>& variable, const ValueKind& kind,
                       const std::string& help) {
  return detail::add_checked(app, names, kind, help,
                             [&variable, &kind](const std::string& text) -> Result<void> {
                               LS_TRY_VOID(check_value(kind, text));
                               variable = spelled(kind, text);
                               return {};
                             });
}

CLI::Option* add_values(CLI::App& app, const std::string& names, std::vector<std::string>& variable,
                        const ValueKind& kind, const std::string& help) {
  CLI::Option* option = app.add_option(names, variable, help)->type_name(kind.name);
  if (!option->get_positional()) option->allow_extra_args(false);
  option->check(CLI::Validator(
      [&kind](std::string& text) {
        const auto checked = check_value(kind, text);
        return checked.ok() ? std::string() : checked.error().message;
      },
      ""));
  return option;
}

CLI::Option* add_threads(CLI::App& app, int& threads) {
  constexpr int64_t kMostThreads = 4096;
  return detail::add_checked(
      app, "-t,--threads", kWholeNumber, "Threads (default: all cores)",
      [&threads](const std::string& text) -> Result<void> {
        LS_TRY(const int64_t given, parse_number(text, NumberRange<int64_t>{1, kMostThreads}));
        threads = static_cast<int>(given);
        const int cores = available_cores();
        if (threads > cores)
          notice(
              "lockstep: warning: --threads {} on {} core{}: more threads than cores only "
              "slow it down\n",
              threads, cores, cores == 1 ? "" : "s");
        return {};
      });
}

}  // namespace lockstep::cli
