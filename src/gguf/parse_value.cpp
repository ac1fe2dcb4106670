#include "gguf/parse_value.h"

#include <type_traits>
#include <utility>

namespace lockstep::gguf {
namespace {

// Room that is made before the items are seen. What takes more memory than in the file (a text of
// 8 bytes takes 32) grows with what is really there.
constexpr int64_t kTrustedItems = 1024;

Result<Type> read_type(Cursor& cursor, const Field& field) {
  const int64_t at = cursor.offset();
  LS_TRY(const auto type, cursor.read<uint32_t>(field));
  if (type >= kTypes)
    return cursor.fail(at, field, fmt::format("{}", type),
                       fmt::format("a known type, 0 to {}", kTypes - 1));
  return static_cast<Type>(type);
}

template <class T>
Result<T> read_item(Cursor& cursor, const Field& field, int depth);

template <class T>
Result<Array> read_items(Cursor& cursor, std::string_view key, int depth) {
  // The fewest bytes of an element: a text has a length, an array a type and a count.
  constexpr int64_t kMinBytes = std::is_same_v<T, Array>         ? 12
                                : std::is_same_v<T, std::string> ? 8
                                                                 : static_cast<int64_t>(sizeof(T));
  LS_TRY(const int64_t count, cursor.read_count({"array length", -1, key}, kMinBytes));
  std::vector<T> items;
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    LS_TRY(const auto raw, cursor.take(count * kMinBytes, {"array", -1, key}));
    items.resize(static_cast<size_t>(count));
    if (count > 0) std::memcpy(items.data(), raw.data(), raw.size());
  } else {
    items.reserve(static_cast<size_t>(std::min(count, kTrustedItems)));
    for (int64_t i = 0; i < count; ++i) {
      LS_TRY(T item, read_item<T>(cursor, {"element", i, key}, depth));
      items.push_back(std::move(item));
    }
  }
  return Array{std::move(items)};
}

template <class F>
auto with_type(Type type, const F& f) {
  switch (type) {
    case Type::kU8:
      return f(std::type_identity<uint8_t>{});
    case Type::kI8:
      return f(std::type_identity<int8_t>{});
    case Type::kU16:
      return f(std::type_identity<uint16_t>{});
    case Type::kI16:
      return f(std::type_identity<int16_t>{});
    case Type::kU32:
      return f(std::type_identity<uint32_t>{});
    case Type::kI32:
      return f(std::type_identity<int32_t>{});
    case Type::kF32:
      return f(std::type_identity<float>{});
    case Type::kBool:
      return f(std::type_identity<bool>{});
    case Type::kString:
      return f(std::type_identity<std::string>{});
    case Type::kArray:
      return f(std::type_identity<Array>{});
    case Type::kU64:
      return f(std::type_identity<uint64_t>{});
    case Type::kI64:
      return f(std::type_identity<int64_t>{});
    case Type::kF64:
      break;
  }
  return f(std::type_identity<double>{});
}

template <class T>
Result<T> read_item(Cursor& cursor, const Field& field, int depth) {
  if constexpr (std::is_same_v<T, bool>) {
    const int64_t at = cursor.offset();
    LS_TRY(const auto value, cursor.read<uint8_t>(field));
    if (value > 1) return cursor.fail(at, field, fmt::format("{}", value), "a bool, 0 or 1");
    return value == 1;
  } else if constexpr (std::is_same_v<T, std::string>) {
    LS_TRY(const std::string_view text,
           cursor.read_text(
               {field.index >= 0 ? "length of element" : "text length", field.index, field.of}));
    return std::string(text);
  } else if constexpr (std::is_same_v<T, Array>) {
    if (depth >= kMaxDepth)
      return cursor.fail(cursor.offset(), field, "arrays nested more deeply",
                         fmt::format("at most {} levels", kMaxDepth));
    LS_TRY(const Type type, read_type(cursor, {"type of the elements", -1, field.of}));
    return with_type(type, [&]<class Item>(std::type_identity<Item>) {
      return read_items<Item>(cursor, field.of, depth + 1);
    });
  } else {
    return cursor.read<T>(field);
  }
}

}  // namespace

Result<Value> read_value(Cursor& cursor, std::string_view key) {
  LS_TRY(const Type type, read_type(cursor, {"metadata type", -1, key}));
  return with_type(type, [&]<class Item>(std::type_identity<Item>) -> Result<Value> {
    LS_TRY(Item item, read_item<Item>(cursor, {"metadata value", -1, key}, 0));
    return Value{std::move(item)};
  });
}

}  // namespace lockstep::gguf
