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

std::string code(std::string_view name) {
  if (!name.empty() && std::ranges::all_of(name, is_plain)) return fmt::format("`{}`", name);
  return markdown_text(name);
}

}  // namespace

std::string markdown_text(std::string_view text) {
  const std::string plain = printable(text);
  const auto is_word = [&](size_t at) {
    return at < plain.size() && is_plain(plain[at]) && plain[at] != '_';
  };
  std::string out;
  for (size_t i = 0; i < plain.size(); ++i) {
    const char c = plain[i];
    // Within a word, as in ffn_act, it means nothing.
    const bool inner = c == '_' && i > 0 && is_word(i - 1) && is_word(i + 1);
    if (std::string_view("&<>|`").find(c) != std::string_view::npos)
      out += fmt::format("&#{};", static_cast<int>(c));
    else if (!inner && std::string_view("\\*_[]~$@").find(c) != std::string_view::npos)
      out += fmt::format("\\{}", c);
    else
      out += c;
  }
  return out;
}

std::string markdown_report(const parity::Comparison& c, const Subject& subject) {
  std::string out = fmt::format("### {} {}\n\n",
                                c.parity                      ? "✅"
                                : c.verdict == "inconclusive" ? "❔"
                                                              : "❌",
                                markdown_text(headline(c)));
  for (const std::string& cause : causes(subject)) out += markdown_text(cause) + "\n\n";
  if (const std::string why = evidence(c, subject); !why.empty())
    out += markdown_text(why) + "\n\n";
  for (const std::string& sentence : explanation_sentences(c))
    out += markdown_text(sentence) + "\n\n";
  out += "| | |\n|---|---|\n";
  for (const Fact& fact : facts(c, subject))
    out += fmt::format("| {} | {} |\n", fact.label, markdown_text(fact.text));
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
  for (const std::string& note : c.notes) out += fmt::format("- {}\n", markdown_text(note));
  return out;
}

}  // namespace lockstep::report
