#include "quant/tensor_recipe.h"

#include <algorithm>

#include "base/text.h"
#include "quant/encode.h"

namespace lockstep::quant {
namespace {

constexpr std::string_view kSpace = " \t\r";

// Whether the text is as the pattern says. Goes back to the last * only, so that time is bounded by
// the product of the lengths.
bool fits_pattern(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::string_view take_word(std::string_view& line) {
  const size_t begin = std::min(line.find_first_not_of(kSpace), line.size());
  const size_t end = std::min(line.find_first_of(kSpace, begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

std::string writable_formats() {
  std::string names;
  for (const FormatInfo& format : all_formats())
    if (format.decodable && encodable(format.format()))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", format.name);
  return names;
}

}  // namespace

Result<TensorRecipe> TensorRecipe::parse(std::string_view text, const std::string& path) {
  constexpr int64_t kLongestShown = 60;
  TensorRecipe out;
  out.path_ = path;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    line = line.substr(0, line.find('#'));
    const std::string_view whole = line;
    const std::string_view pattern = take_word(line);
    if (pattern.empty()) continue;
    const std::string_view format = take_word(line);
    if (format.empty() || !take_word(line).empty())
      return error(
          "{}: line {}: found '{}', expected a tensor's name and a format, such as '* Q4_K'", path,
          number, printable(whole, kLongestShown));
    const FormatInfo* found = find_format(format);
    if (found == nullptr || !found->decodable || !encodable(found->format()))
      return error("{}: line {}: found the format '{}', expected one of {}", path, number,
                   printable(format, kLongestShown), writable_formats());
    out.lines_.push_back({std::string(pattern), found, number});
  }
  if (out.lines_.empty())
    return error("{}: no line of a recipe; expected lines such as '* Q4_K'", path);
  return out;
}

const FormatInfo* TensorRecipe::format_of(std::string_view tensor) const {
  const auto found = std::find_if(lines_.rbegin(), lines_.rend(), [&](const Line& line) {
    return fits_pattern(line.pattern, tensor);
  });
  return found != lines_.rend() ? found->format : nullptr;
}

const TensorRecipe::Line* TensorRecipe::unused(const std::vector<std::string_view>& tensors) const {
  for (const Line& line : lines_) {
    const auto fit = [&](std::string_view tensor) { return fits_pattern(line.pattern, tensor); };
    if (std::ranges::none_of(tensors, fit)) return &line;
  }
  return nullptr;
}

}  // namespace lockstep::quant
