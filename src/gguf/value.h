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

std::string_view name(Type type);  // "u32", "string", ...

struct Value;

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

}  // namespace lockstep::gguf
