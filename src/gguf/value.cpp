#include "gguf/value.h"

#include <algorithm>
#include <type_traits>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::gguf {
namespace {

template <class T>
void append_raw(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_item(std::string& out, const std::string& text) {
  append_text(out, text);
}

void append_item(std::string& out, bool value) {
  out.push_back(value ? '\1' : '\0');
}

void append_item(std::string& out, const Array& array);

template <class T>
requires std::is_arithmetic_v<T>
void append_item(std::string& out, const T& value) {
  append_raw(out, value);
}

void append_item(std::string& out, const Array& array) {
  append_raw(out, static_cast<uint32_t>(array.type()));
  append_raw(out, static_cast<uint64_t>(array.size()));
  std::visit(
      [&](const auto& items) {
        for (const auto& item : items) append_item(out, item);
      },
      array.items);
}

// Text is cut by characters, arrays by items; the shortest digits that read back as the number.
template <class T>
std::string shown(const T& item, int64_t max_items, int64_t max_chars) {
  if constexpr (std::is_same_v<T, std::string>) {
    return fmt::format("\"{}\"", printable(item, max_chars));
  } else if constexpr (std::is_same_v<T, Array>) {
    std::string out = "[";
    std::visit(
        [&](const auto& items) {
          using Item = typename std::decay_t<decltype(items)>::value_type;
          const int64_t size = item.size();
          const int64_t count = std::min(size, max_items);
          for (int64_t i = 0; i < count; ++i)
            out += (i > 0 ? ", " : "") +
                   shown<Item>(items[static_cast<size_t>(i)], max_items, max_chars);
          if (size > count) out += fmt::format("{}… {} in all", count > 0 ? ", " : "", size);
        },
        item.items);
    return out + "]";
  } else {
    return fmt::format("{}", item);
  }
}

}  // namespace

std::string_view name(Type type) {
  constexpr std::string_view kNames[kTypes] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                               "i32", "f32", "bool", "string", "array",
                                               "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

int64_t Array::size() const {
  return std::visit([](const auto& values) { return static_cast<int64_t>(values.size()); }, items);
}

std::string type_name(const Value& value) {
  const auto* array = std::get_if<Array>(&value.value);
  if (array == nullptr) return std::string(name(value.type()));
  return fmt::format("{}[{}]", name(array->type()), array->size());
}

std::string preview(const Value& value, int64_t max_items, int64_t max_chars) {
  return std::visit([&](const auto& item) { return shown(item, max_items, max_chars); },
                    value.value);
}

void append_text(std::string& out, std::string_view text) {
  append_raw(out, static_cast<uint64_t>(text.size()));
  out += text;
}

void append_value(std::string& out, const Value& value) {
  append_raw(out, static_cast<uint32_t>(value.type()));
  std::visit([&](const auto& item) { append_item(out, item); }, value.value);
}

}  // namespace lockstep::gguf
