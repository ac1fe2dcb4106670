#include <algorithm>

#include "base/text.h"
#include "report/summary.h"

namespace lockstep::report {
namespace {

using parity::CheckpointResult;

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-' || c == '/';
}

// Text that no renderer takes for markup: whatever is neither letter nor digit nor plain
// punctuation becomes an entity. Bytes of UTF-8 stay.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    const bool kept = (is_plain(c) && c != '_') || c == ' ' || c == ',' || c == ':' || c == ';' ||
                      c == '%' || (static_cast<unsigned char>(c) & 0x80u) != 0;
    out += kept ? std::string(1, c) : fmt::format("&#{};", static_cast<int>(c));
  }
  return out;
}

std::string code(std::string_view name) {
  if (!name.empty() && std::ranges::all_of(name, is_plain)) return fmt::format("`{}`", name);
  return escaped(name);
}

}  // namespace

std::string markdown_report(const parity::Comparison& c, const Subject& subject) {
  std::string out = fmt::format("### {} {}\n\n", c.parity ? "✅" : "❌", escaped(headline(c)));
  if (const std::string why = evidence(c, subject); !why.empty()) out += escaped(why) + "\n\n";
  out += "| | |\n|---|---|\n";
  for (const Fact& fact : facts(c, subject))
    out += fmt::format("| {} | {} |\n", fact.label, escaped(fact.text));
  if (const auto list = stations(c); !list.empty()) {
    out +=
        "\n<details><summary>Drift by layer</summary>\n\n"
        "| after | NMSE | relative L2 | verdict |\n|---|--:|--:|---|\n";
    for (const CheckpointResult* result : list)
      out += fmt::format(
          "| {} | {} | {} | {} |\n", code(result->name), short_number(result->metrics.nmse()),
          short_number(result->metrics.relative_l2()), parity::name(result->verdict));
    out += "\n</details>\n";
  }
  if (const auto list = worst(c, kWorst); !list.empty()) {
    out +=
        "\n**Worst checkpoints**\n\n"
        "| checkpoint | verdict | own error / bound | relative L2 | largest difference | at |\n"
        "|---|---|--:|--:|--:|--:|\n";
    for (const CheckpointResult* result : list)
      out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", code(result->name),
                         parity::name(result->verdict), short_number(worst_ratio(*result)),
                         short_number(result->metrics.relative_l2()),
                         short_number(result->metrics.max_difference), result->worst_position);
  }
  if (!c.notes.empty()) out += "\n";
  for (const std::string& note : c.notes) out += fmt::format("- {}\n", escaped(note));
  return out;
}

}  // namespace lockstep::report
