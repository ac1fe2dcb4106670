// Metadata by key and type: the value, or an error that says what was found instead.
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "gguf/file.h"

namespace lockstep::gguf {
namespace {

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

Error missing(const File& file, std::string_view key, std::string_view expected) {
  return error("{}: metadata '{}': found no such key, expected {}", printable(file.path()),
               printable(key, 80), expected);
}

Error mistyped(const File& file, std::string_view key, const Value& value,
               std::string_view expected) {
  return error("{}: metadata '{}': found {} {}, expected {}", printable(file.path()),
               printable(key, 80), type_name(value), preview(value, 4, 40), expected);
}

template <class T>
std::optional<int64_t> to_integer(const T& item) {
  if constexpr (kIsInteger<T>) {
    if (std::in_range<int64_t>(item)) return static_cast<int64_t>(item);
  }
  return std::nullopt;
}

template <class T>
std::optional<double> to_real(const T& item) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<double>(item);
  return std::nullopt;
}

template <class T>
std::optional<bool> to_boolean(const T& item) {
  if constexpr (std::is_same_v<T, bool>) return item;
  return std::nullopt;
}

template <class T>
std::optional<std::string_view> to_text(const T& item) {
  if constexpr (std::is_same_v<T, std::string>) return std::string_view(item);
  return std::nullopt;
}

// `convert` gives nothing for what is of another type or does not fit.
template <class T, class Convert>
Result<T> scalar(const File& file, std::string_view key, const std::optional<T>& otherwise,
                 std::string_view expected, const Convert& convert) {
  const Value* value = file.find(key);
  if (value == nullptr) {
    if (otherwise) return *otherwise;
    return missing(file, key, expected);
  }
  const std::optional<T> converted = std::visit(convert, value->value);
  if (converted) return *converted;
  return mistyped(file, key, *value, expected);
}

Result<const Array*> array(const File& file, std::string_view key, std::string_view expected) {
  const Value* value = file.find(key);
  if (value == nullptr) return missing(file, key, expected);
  const auto* found = std::get_if<Array>(&value->value);
  if (found == nullptr) return mistyped(file, key, *value, expected);
  return found;
}

template <class T, class Convert>
Result<std::vector<T>> converted_array(const File& file, std::string_view key,
                                       std::string_view expected, const Convert& convert) {
  LS_TRY(const Array* found, array(file, key, expected));
  return std::visit(
      [&](const auto& items) -> Result<std::vector<T>> {
        using Item = typename std::decay_t<decltype(items)>::value_type;
        // The type counts even where there are no items: those of the right one convert.
        if (!convert(Item{})) return mistyped(file, key, *file.find(key), expected);
        std::vector<T> out;
        out.reserve(items.size());
        for (const auto& item : items) {
          const auto converted = convert(static_cast<const Item&>(item));
          if (!converted) return mistyped(file, key, *file.find(key), expected);
          out.push_back(static_cast<T>(*converted));
        }
        return out;
      },
      found->items);
}

constexpr auto kToInteger = [](const auto& item) { return to_integer(item); };
constexpr auto kToReal = [](const auto& item) { return to_real(item); };
constexpr auto kToBoolean = [](const auto& item) { return to_boolean(item); };
constexpr auto kToText = [](const auto& item) { return to_text(item); };

Result<int64_t> integer_of(const File& file, std::string_view key, std::optional<int64_t> other) {
  return scalar<int64_t>(file, key, other, "an integer below 2^63", kToInteger);
}
Result<std::string_view> text_of(const File& file, std::string_view key,
                                 std::optional<std::string_view> other) {
  return scalar<std::string_view>(file, key, other, "a string", kToText);
}

}  // namespace

Result<int64_t> File::integer(std::string_view key) const {
  return integer_of(*this, key, std::nullopt);
}
Result<double> File::real(std::string_view key) const {
  return scalar<double>(*this, key, std::nullopt, "a float (f32 or f64)", kToReal);
}
Result<bool> File::boolean(std::string_view key) const {
  return scalar<bool>(*this, key, std::nullopt, "a bool", kToBoolean);
}
Result<std::string_view> File::text(std::string_view key) const {
  return text_of(*this, key, std::nullopt);
}

Result<int64_t> File::integer_or(std::string_view key, int64_t otherwise) const {
  return integer_of(*this, key, otherwise);
}
Result<std::string_view> File::text_or(std::string_view key, std::string_view otherwise) const {
  return text_of(*this, key, otherwise);
}

Result<const std::vector<std::string>*> File::texts(std::string_view key) const {
  LS_TRY(const Array* found, array(*this, key, "an array of strings"));
  const auto* texts = std::get_if<std::vector<std::string>>(&found->items);
  if (texts == nullptr) return mistyped(*this, key, *find(key), "an array of strings");
  return texts;
}

Result<std::vector<int64_t>> File::integers(std::string_view key) const {
  return converted_array<int64_t>(*this, key, "an array of integers below 2^63", kToInteger);
}

Result<std::vector<int64_t>> File::flags(std::string_view key) const {
  const auto flag = [](const auto& item) -> std::optional<int64_t> {
    if (const std::optional<bool> value = to_boolean(item)) return *value ? 1 : 0;
    const std::optional<int64_t> value = to_integer(item);
    return value && (*value == 0 || *value == 1) ? value : std::nullopt;
  };
  return converted_array<int64_t>(*this, key, "an array of bools, or of 0 and 1", flag);
}

Result<std::vector<float>> File::reals(std::string_view key) const {
  // A finite f64 that is no finite float is refused rather than turned into infinity.
  const auto fits = [](const auto& item) -> std::optional<double> {
    const std::optional<double> value = to_real(item);
    if (value && std::isfinite(*value) &&
        std::abs(*value) > static_cast<double>(std::numeric_limits<float>::max()))
      return std::nullopt;
    return value;
  };
  return converted_array<float>(*this, key, "an array of floats (f32 or f64)", fits);
}

}  // namespace lockstep::gguf
