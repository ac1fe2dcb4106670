#include "cli/model_size.h"

#include <cmath>

#include "base/text.h"
#include "cli/options.h"

namespace lockstep::cli {

int64_t ModelSize::bytes_of(const gguf::File& file) const {
  if (bits == 0) return bytes;
  double values = 0;
  for (const gguf::Tensor& tensor : file.tensors()) values += static_cast<double>(tensor.values());
  return static_cast<int64_t>(bits * values / 8);
}

Result<ModelSize> parse_model_size(const std::string& text) {
  constexpr double kMostBits = 32, kMostBytes = 1e15;
  constexpr std::string_view kUnits = "kMGT";
  std::string digits = text;
  if (digits.ends_with('B')) digits.pop_back();
  double unit = 1;
  if (const size_t found = digits.empty() ? kUnits.npos : kUnits.find(digits.back());
      found != kUnits.npos) {
    unit = std::pow(1000.0, static_cast<double>(found + 1));
    digits.pop_back();
  }
  const auto number = parse_number(digits, NumberRange<double>{.least = 0, .above = true});
  if (!number.ok() || *number * unit > kMostBytes)
    return error("found '{}', expected bits a weight such as 4.5, or bytes such as 400M",
                 printable(text, 100));
  if (digits == text && *number <= kMostBits) return ModelSize{*number, 0};
  return ModelSize{0, static_cast<int64_t>(*number * unit)};
}

}  // namespace lockstep::cli
