// The names that a manifest's precision may have: one table, of the header for engines and of the
// program alike. (Python has a copy, python/lockstep/_precision.py; a test holds them together.)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {
namespace detail {

enum class Scale { kNone, kTensor, kRow, kBlock };

// A name taken apart: "e4m3:block128" is e4m3 with one scale for 128 numbers.
struct PrecisionName {
  std::string_view type;
  Scale scale = Scale::kNone;
  int64_t block = 0;
};

enum class Scaled { kNever, kMaybe, kAlways };

struct PrecisionRow {
  std::string_view type;
  std::string_view fields;  // that it may stand in
  Scaled scaled;
};

inline constexpr PrecisionRow kPrecisionRows[] = {
    {"f64", "compute activations kv weights", Scaled::kNever},
    {"f32", "compute activations kv weights sums", Scaled::kNever},
    {"tf32", "compute activations weights", Scaled::kNever},
    {"f16", "compute activations kv weights sums", Scaled::kNever},
    {"bf16", "compute activations kv weights", Scaled::kNever},
    {"e4m3", "activations kv weights", Scaled::kMaybe},
    {"e5m2", "activations kv weights", Scaled::kMaybe},
    {"int8", "activations kv weights", Scaled::kAlways},
    {"q8_0", "activations", Scaled::kNever},
    {"q8_1", "activations", Scaled::kNever},
    {"q8_k", "activations", Scaled::kNever},
    {"i16", "activations", Scaled::kNever},
    {"by_weight", "activations", Scaled::kNever},
};
inline constexpr int64_t kMostInBlock = 65536;

inline bool stands_in(const PrecisionRow& row, std::string_view field) {
  const size_t at = row.fields.find(field);
  return at != std::string_view::npos && !field.empty() && (at == 0 || row.fields[at - 1] == ' ') &&
         (at + field.size() == row.fields.size() || row.fields[at + field.size()] == ' ');
}

// "tensor", "row" or "block" and how many numbers; false: none of these.
inline bool read_scale(std::string_view text, PrecisionName* out) {
  if (text == "tensor") out->scale = Scale::kTensor;
  if (text == "row") out->scale = Scale::kRow;
  if (text == "tensor" || text == "row") return true;
  constexpr std::string_view kBlock = "block";
  if (text.substr(0, kBlock.size()) != kBlock) return false;
  text.remove_prefix(kBlock.size());
  if (text.empty() || text.size() > 5 || text[0] == '0') return false;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    out->block = 10 * out->block + (c - '0');
  }
  out->scale = Scale::kBlock;
  return out->block <= kMostInBlock;
}

// Whether `name` may stand in `field` ("compute", "activations", "kv", "weights",
// "sums"), and what it is.
inline bool read_precision_name(std::string_view field, std::string_view name, PrecisionName* out) {
  *out = PrecisionName();
  const size_t colon = name.find(':');
  out->type = name.substr(0, colon);
  for (const PrecisionRow& row : kPrecisionRows) {
    if (row.type != out->type || !stands_in(row, field)) continue;
    if (colon == std::string_view::npos) return row.scaled != Scaled::kAlways;
    return row.scaled != Scaled::kNever && read_scale(name.substr(colon + 1), out);
  }
  return false;
}

// What a message says is known.
inline std::string known_precision_names(std::string_view field) {
  std::string plain, scaled;
  for (const PrecisionRow& row : kPrecisionRows) {
    if (!stands_in(row, field)) continue;
    if (row.scaled != Scaled::kAlways) plain += (plain.empty() ? "" : ", ") + std::string(row.type);
    if (row.scaled != Scaled::kNever)
      scaled += (scaled.empty() ? "" : ", ") + std::string(row.type) + ":S";
  }
  if (scaled.empty()) return plain;
  return plain + ", " + scaled + " with S tensor, row or block1 to block" +
         std::to_string(kMostInBlock);
}

}  // namespace detail
}  // namespace lockstep
