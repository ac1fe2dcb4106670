#include "cli/help_format.h"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include "base/terminal.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kPipeWidth = 100;  // for a pipe or a file
constexpr int64_t kLeastWidth = 30;  // of the descriptions, however narrow the terminal is

// Lines of at most `width` columns where words allow it, with `indent` before all but the first.
std::string wrapped(const std::string& text, int64_t width, size_t indent) {
  std::string out, line;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && utf8_length(line) + 1 + utf8_length(word) > width) {
      out += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return out + line;
}

}  // namespace

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  if (option->get_type_size() == 0) return "";
  std::string out = " " + option->get_type_name();
  if (!option->get_default_str().empty()) out += "=" + option->get_default_str();
  if (option->get_items_expected_max() > 1) out += " ...";
  return out;
}

std::string HelpFormat::make_option_desc(const CLI::Option* option) const {
  std::string out = option->get_description();
  for (const CLI::Option* other : option->get_needs())
    out += fmt::format(" (needs {})", other->get_name());
  return out;
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_position) const {
  const std::string name = "  " + make_option_name(option, is_position) + make_option_opts(option);
  const auto indent = static_cast<size_t>(column_width_);
  const int64_t room = terminal_width(STDOUT_FILENO, kPipeWidth) - static_cast<int64_t>(indent);
  const std::string text = wrapped(make_option_desc(option), std::max(room, kLeastWidth), indent);
  return name.size() >= indent ? fmt::format("{}\n{:{}}{}\n", name, "", indent, text)
                               : fmt::format("{:<{}}{}\n", name, indent, text);
}

}  // namespace lockstep::cli
