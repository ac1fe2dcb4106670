#include "audit/keys.h"

#include <type_traits>

namespace lockstep::audit {
namespace {

using nlohmann::ordered_json;

template <class T>
ordered_json json_value(const T& item) {
  if constexpr (std::is_same_v<T, gguf::Array>) {
    return std::visit(
        [](const auto& items) {
          using Item = typename std::decay_t<decltype(items)>::value_type;
          ordered_json out = ordered_json::array();
          for (size_t i = 0; i < items.size(); ++i) out.push_back(json_value<Item>(items[i]));
          return out;
        },
        item.items);
  } else if constexpr (std::is_same_v<T, float>) {
    // The shortest digits that give this float again: 1e-05, not 9.99999974e-06.
    return std::isfinite(item) ? ordered_json(std::stod(fmt::format("{}", item)))
                               : ordered_json(fmt::format("{}", item));
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::isfinite(item) ? ordered_json(item) : ordered_json(fmt::format("{}", item));
  } else {
    return item;
  }
}

bool is_number(const ordered_json& value) {
  return value.is_number() || value.is_boolean();
}

double number_of(const ordered_json& value) {
  return value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0) : value.get<double>();
}

}  // namespace

ordered_json value_of(const gguf::File& file, std::string_view key) {
  const gguf::Value* value = file.find(key);
  if (value == nullptr) return nullptr;
  return std::visit([](const auto& item) { return json_value(item); }, value->value);
}

bool same_value(const ordered_json& a, const ordered_json& b) {
  if (is_number(a) && is_number(b)) {
    if (a.is_number_integer() && b.is_number_integer()) return a == b;
    return static_cast<float>(number_of(a)) == static_cast<float>(number_of(b));
  }
  if (!a.is_array() || !b.is_array()) return a == b;
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_value(a[i], b[i])) return false;
  return true;
}

KeyVerdict judge_key(const KeyAudit& key) {
  const bool in_a = !key.a.is_null(), in_b = !key.b.is_null();
  if (in_a && in_b) return same_value(key.a, key.b) ? KeyVerdict::kEqual : KeyVerdict::kDifferent;
  const ordered_json& a = in_a ? key.a : key.assumed_a;
  const ordered_json& b = in_b ? key.b : key.assumed_b;
  if (!a.is_null() && !b.is_null() && same_value(a, b)) return KeyVerdict::kAssumed;
  return in_a || in_b ? KeyVerdict::kMissing : KeyVerdict::kDifferent;
}

}  // namespace lockstep::audit
