#include "server/fields.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "base/near_names.h"
#include "base/text.h"

namespace lockstep::server {
namespace {

// As many as a prompt of token ids has, and some. The network thread parses them in milliseconds.
constexpr int64_t kMostValues = 40'000;
constexpr int64_t kMostStops = 16;
constexpr int64_t kMostStopChars = 256;

}  // namespace

std::optional<ApiError> parse_body(std::string_view body, nlohmann::json& out) {
  Result<nlohmann::json> parsed = parse_json(body, "request", kMostValues);
  if (!parsed.ok()) return ApiError{400, "INVALID_JSON", parsed.error().message, ""};
  if (!parsed->is_object())
    return ApiError{400, "INVALID_JSON", JsonReader(*parsed, "request").wrong("an object").message,
                    ""};
  out = *std::move(parsed);
  return std::nullopt;
}

Fields::Fields(JsonReader object, std::string place)
    : object_(std::move(object)), place_(std::move(place)) {}

std::string Fields::place_of(std::string_view name) const {
  return place_.empty() ? std::string(name) : fmt::format("{}.{}", place_, name);
}

JsonReader Fields::find(const char* name) {
  known_.emplace_back(name);
  return object_[name];
}

void Fields::fail(const char* name, std::string message) {
  if (!problem_) problem_ = ApiError{400, "INVALID_FIELD", std::move(message), place_of(name)};
}

void Fields::wrong(const char* name, const JsonReader& found, std::string_view expected) {
  fail(name, found.wrong(expected).message);
}

void Fields::missing(const char* name, std::string_view expected) {
  if (!problem_)
    problem_ =
        ApiError{400, "MISSING_FIELD", object_[name].wrong(expected).message, place_of(name)};
}

void Fields::adopt(std::optional<ApiError> problem) {
  if (!problem_) problem_ = std::move(problem);
}

std::optional<std::string> Fields::text(const char* name, int64_t most_chars) {
  const JsonReader found = find(name);
  if (!found.present()) return std::nullopt;
  Result<std::string> text = found.text();
  if (!text.ok()) {
    fail(name, text.error().message);
    return std::nullopt;
  }
  if (const int64_t length = utf8_length(*text); length > most_chars) {
    fail(name, fmt::format("request: {}: found {} characters, expected at most {}", place_of(name),
                           length, most_chars));
    return std::nullopt;
  }
  return *std::move(text);
}

std::optional<bool> Fields::boolean(const char* name) {
  const JsonReader found = find(name);
  if (!found.present()) return std::nullopt;
  const Result<bool> value = found.boolean();
  if (value.ok()) return *value;
  fail(name, value.error().message);
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(const char* name, int64_t least, int64_t most) {
  const JsonReader found = find(name);
  if (!found.present()) return std::nullopt;
  const Result<int64_t> value = found.integer(least, most);
  if (value.ok()) return *value;
  fail(name, value.error().message);
  return std::nullopt;
}

std::optional<double> Fields::number(const char* name, double least, double most) {
  const JsonReader found = find(name);
  if (!found.present()) return std::nullopt;
  const Result<double> value = found.number();
  if (value.ok() && *value >= least && *value <= most) return *value;
  wrong(name, found, fmt::format("a number from {} to {}", least, most));
  return std::nullopt;
}

std::optional<double> Fields::number_above(const char* name, double least, double most) {
  const std::optional<double> value = number(name, least, most);
  if (!value || *value > least) return value;
  wrong(name, object_[name], fmt::format("a number above {}, at most {}", least, most));
  return std::nullopt;
}

std::optional<uint64_t> Fields::seed(const char* name) {
  const JsonReader found = find(name);
  if (!found.present()) return std::nullopt;
  if (found.value().is_number_unsigned()) return found.value().get<uint64_t>();
  if (found.value().is_number_integer()) return static_cast<uint64_t>(found.value().get<int64_t>());
  wrong(name, found, "a whole number of at most 64 bits");
  return std::nullopt;
}

std::vector<std::string> Fields::stops(const char* name) {
  const JsonReader found = find(name);
  std::vector<std::string> stops;
  if (!found.present()) return stops;
  std::vector<JsonReader> list = {found};
  if (found.value().is_array()) list = *found.items();
  const std::string expected =
      fmt::format("a text of 1 to {} characters, or an array of at most {} of them", kMostStopChars,
                  kMostStops);
  if (std::ssize(list) > kMostStops) wrong(name, found, expected);
  if (failed()) return {};
  for (const JsonReader& item : list) {
    Result<std::string> text = item.text();
    if (!text.ok() || text->empty() || utf8_length(*text) > kMostStopChars) {
      wrong(name, item, expected);
      return {};
    }
    stops.push_back(*std::move(text));
  }
  return stops;
}

std::optional<JsonReader> Fields::any(const char* name) {
  JsonReader found = find(name);
  if (!found.present()) return std::nullopt;
  return found;
}

std::optional<JsonReader> Fields::object(const char* name) {
  std::optional<JsonReader> found = any(name);
  if (!found || found->value().is_object()) return found;
  wrong(name, *found, "an object");
  return std::nullopt;
}

std::vector<JsonReader> Fields::items(const char* name) {
  const std::optional<JsonReader> found = any(name);
  if (!found) return {};
  Result<std::vector<JsonReader>> items = found->items();
  if (items.ok()) return *std::move(items);
  fail(name, items.error().message);
  return {};
}

void Fields::ignore(std::initializer_list<const char*> names) {
  for (const char* name : names) known_.emplace_back(name);
}

void Fields::only(const char* name, const nlohmann::json& value) {
  const JsonReader found = find(name);
  if (found.present() && found.value() != value)
    wrong(name, found, fmt::format("{}: nothing else is supported here", value.dump()));
}

std::optional<ApiError> Fields::finish() {
  if (problem_) return problem_;
  constexpr size_t kMostShown = 8;
  std::vector<std::string> unknown;
  for (const auto& [name, value] : object_.value().items())
    if (std::ranges::find(known_, name) == known_.end()) unknown.push_back(name);
  if (unknown.empty()) return std::nullopt;
  std::string message = fmt::format("request: unknown field{}", unknown.size() > 1 ? "s" : "");
  for (size_t i = 0; i < std::min(unknown.size(), kMostShown); ++i) {
    message += fmt::format("{} '{}'", i > 0 ? "," : "", printable(place_of(unknown[i]), 80));
    if (const auto near = near_names(unknown[i], known_, 1); !near.empty())
      message += fmt::format(" (did you mean {}?)", near[0]);
  }
  if (unknown.size() > kMostShown)
    message += fmt::format(" and {} more", unknown.size() - kMostShown);
  return ApiError{400, "UNKNOWN_FIELD", message, printable(place_of(unknown[0]), 80)};
}

}  // namespace lockstep::server
