// What a row is when it is read as what it is.
#include <type_traits>

#include <fmt/format.h>

#include "forensics/format_words.h"

namespace lockstep::forensics {
namespace {

// Of the two ways to pair the words of a row: rows of odd width start in the middle of a double.
int64_t phase_of(const Row& row) {
  return double_bits(splits_of(row, 1), {}) > double_bits(splits_of(row, 0), {}) ? 1 : 0;
}

}  // namespace

std::string reading_of(const Row& row, Format format) {
  constexpr int64_t kShown = 4;
  std::string shown;
  int64_t count = 0;
  const auto show = [&](const std::string& value) {
    if (count++ < kShown) shown += (count > 1 ? ", " : "") + value;
  };
  const auto each = [&]<class T>(T, const auto& convert, int64_t offset) {
    const auto size = static_cast<int64_t>(row.bytes.size());
    for (int64_t at = offset; at + static_cast<int64_t>(sizeof(T)) <= size && count <= kShown;
         at += static_cast<int64_t>(sizeof(T))) {
      T value;
      std::memcpy(&value, &row.bytes[static_cast<size_t>(at)], sizeof value);
      if constexpr (std::is_same_v<decltype(convert(value)), int64_t>)
        show(fmt::format("{}", convert(value)));
      else
        show(fmt::format("{:.3g}", convert(value)));
    }
  };
  const auto as_number = [](double value) { return value; };
  const auto as_integer = [](auto value) { return static_cast<int64_t>(value); };
  std::string_view what;
  switch (format) {
    case Format::kHalf:
      what = "fp16";
      each(uint16_t{}, half_to_float, 0);
      break;
    case Format::kBfloat:
      what = "bf16";
      each(uint16_t{}, bfloat_to_float, 0);
      break;
    case Format::kDouble:
      what = "f64";
      each(double{}, as_number, 4 * phase_of(row));
      break;
    case Format::kInt8:
    case Format::kInt8Any:
      what = "int8";
      each(int8_t{}, as_integer, 0);
      break;
    case Format::kInt16:
      what = "int16";
      each(int16_t{}, as_integer, 0);
      break;
    case Format::kInt32: {
      bool wide = row.count() >= 4;  // the upper halves repeat the sign
      for (int64_t i = 1; i < row.count(); i += 2)
        wide = wide && word_of(row, i) == (word_of(row, i - 1) >> 31 != 0 ? ~0u : 0u);
      what = wide ? "int64" : "int32";
      if (wide)
        each(int64_t{}, as_integer, 0);
      else
        each(int32_t{}, as_integer, 0);
    }
  }
  return fmt::format("read as {} they are {}{}", what, shown, count > kShown ? ", ..." : "");
}

}  // namespace lockstep::forensics
