// Metadata values of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep::gguf {

// The values are the numbers in the file. The alternatives of Value stand in the same order.
enum class Type : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
inline constexpr uint32_t kTypes = 13;

std::string_view name(Type type);  // "u32", "string", ...

// Arrays within arrays within ...: deeper than anyone needs, shallow enough for recursion.
inline constexpr int kMaxDepth = 8;

// Elements are of one type. Nested arrays (which the format allows) have Array elements.
struct Array {
  std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>,
               std::vector<int16_t>, std::vector<uint32_t>, std::vector<int32_t>,
               std::vector<float>, std::vector<bool>, std::vector<std::string>, std::vector<Array>,
               std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>
      items;

  Type type() const { return static_cast<Type>(items.index()); }
  int64_t size() const;
};

struct Value {
  std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string,
               Array, uint64_t, int64_t, double>
      value;

  Type type() const { return static_cast<Type>(value.index()); }
};

struct Entry {
  std::string key;
  Value value;
};

// "u32", or for arrays the type of the elements and how many: "string[32000]".
std::string type_name(const Value& value);

// For people, on one line: what passes so many array items, or characters of a text, is left out.
std::string preview(const Value& value, int64_t max_items, int64_t max_chars);

// As it stands in a file: a type and the value; a length and the bytes of a text.
void append_value(std::string& out, const Value& value);
void append_text(std::string& out, std::string_view text);

}  // namespace lockstep::gguf
