#include <algorithm>
#include <cmath>

#include "base/table.h"
#include "base/text.h"
#include "report/summary.h"

namespace lockstep::report {
namespace {

using parity::CheckpointResult;

constexpr int64_t kBar = 16;
// A relative difference this small has no bar, one of 1 a whole one: the scale is logarithmic.
constexpr double kSmallestPower = -16;

// Words at most `width` characters a line, later lines moved in. A word that is too long is broken.
std::string wrapped(std::string_view text, int64_t width, int64_t indent) {
  const int64_t room = std::max<int64_t>(width - indent, 12);
  std::string out;
  int64_t used = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    std::string_view word = text.substr(at, end - at);
    at = end + 1;
    const int64_t length = utf8_length(word);
    if (used > 0 && used + 1 + length > room) {
      out += fmt::format("\n{:{}}", "", indent);
      used = 0;
    }
    if (used > 0) {
      out += ' ';
      ++used;
    }
    for (size_t i = 0; i < word.size();) {
      if (used >= room) {
        out += fmt::format("\n{:{}}", "", indent);
        used = 0;
      }
      const auto bytes = static_cast<size_t>(std::max(1, utf8_char(word, i).length));
      out += word.substr(i, bytes);
      i += bytes;
      ++used;
    }
  }
  return out;
}

std::string bar(double relative) {
  if (!(relative > 0)) return "";
  const double power = std::isfinite(relative) ? std::log10(relative) : 0;
  const double share = std::clamp((power - kSmallestPower) / -kSmallestPower, 0.0, 1.0);
  const auto eighths = std::max<int64_t>(1, std::lround(share * 8 * static_cast<double>(kBar)));
  constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string out;
  for (int64_t i = 0; i < eighths / 8; ++i) out += "█";
  return out + kParts[eighths % 8];
}

std::string station_name(const CheckpointResult& result) {
  return result.layer >= 0 ? fmt::format("layer {}", result.layer) : printable(result.name);
}

std::string ratio_text(const CheckpointResult& result) {
  if (result.reference.judged + result.suspect.judged == 0) return "-";
  return short_number(worst_ratio(result));
}

std::string drift_table(const parity::Comparison& c, int64_t width, const Paint& paint) {
  Table table(
      {{"after"}, {"NMSE", true, 2}, {"rel. L2", true}, {"", false, 3}, {"verdict", false, 1}});
  for (const CheckpointResult* result : stations(c))
    table.add({station_name(*result), short_number(result->metrics.nmse()),
               short_number(result->metrics.relative_l2()), bar(result->metrics.relative_l2()),
               std::string(parity::name(result->verdict))});
  return table.render(width, paint);
}

std::string worst_table(const parity::Comparison& c, int64_t width, const Paint& paint) {
  // Names tell checkpoints apart by their ends: columns go before letters do.
  const int64_t name_width = std::max(Table::kNarrowest, width - 10);
  Table table({{"checkpoint"},
               {"verdict"},
               {"own/bound", true, 1},
               {"rel. L2", true, 2},
               {"max diff", true, 4},
               {"at", true, 3}});
  for (const CheckpointResult* result : worst(c, kWorst))
    table.add({printable(result->name, name_width), std::string(parity::name(result->verdict)),
               ratio_text(*result), short_number(result->metrics.relative_l2()),
               short_number(result->metrics.max_difference),
               fmt::format("{}", result->worst_position)});
  return table.render(width, paint);
}

// The parts of a difference, in percents of the value's size.
std::vector<std::string> parts_cells(const parity::Parts& parts) {
  using parity::Origin;
  std::vector<std::string> out = {short_number(100 * parts.relative())};
  for (const Origin origin : {Origin::kWeights, Origin::kRounding, Origin::kInherited})
    out.push_back(short_number(100 * parts.relative(origin)));
  return out;
}

std::string explanation_tables(const parity::Comparison& c, int64_t width, const Paint& paint) {
  const std::vector<Column> columns = {
      {"differs by %", true}, {"weights", true}, {"rounding", true, 1}, {"inherited", true, 2}};
  const auto with = [&](std::vector<Column> first) {
    first.insert(first.end(), columns.begin(), columns.end());
    return first;
  };
  std::string out;
  if (!c.explanation->layers.empty()) {
    Table table(with({{"after"}}));
    for (const parity::ExplainedValue& value : c.explanation->layers) {
      std::vector<std::string> cells = parts_cells(value.parts);
      cells.insert(cells.begin(), value.layer >= 0 ? fmt::format("layer {}", value.layer)
                                                   : printable(value.checkpoint));
      table.add(std::move(cells));
    }
    out += fmt::format("\n{}\n{}", paint.bold("What the difference comes from, by layer"),
                       table.render(width, paint));
  }
  if (const auto tensors = explained_tensors(c); !tensors.empty()) {
    Table table(with({{"tensor", false, 0, true}, {"format", false, 3}}));
    for (size_t i = 0; i < std::min(tensors.size(), kWorst); ++i) {
      std::vector<std::string> cells = parts_cells(tensors[i]->parts);
      cells.insert(cells.begin(), tensor_formats(*tensors[i]));
      cells.insert(cells.begin(), tensor_names(*tensors[i]));
      table.add(std::move(cells));
    }
    out += fmt::format("\n{}\n{}", paint.bold("By tensor, the most changed"),
                       table.render(width, paint));
  }
  return out;
}

}  // namespace

std::string terminal_report(const parity::Comparison& c, const Subject& subject, int64_t width,
                            const Paint& paint) {
  constexpr int64_t kLabel = 12;
  // Lines are wrapped first and painted after: escape sequences have no width.
  const std::string first = wrapped(headline(c), width, 0);
  std::string out = paint.bold(c.parity ? paint.green(first) : paint.red(first)) + "\n";
  for (const std::string& cause : causes(subject)) out += wrapped(cause, width, 0) + "\n";
  if (const std::string why = evidence(c, subject); !why.empty())
    out += wrapped(why, width, 0) + "\n";
  for (const std::string& sentence : explanation_sentences(c))
    out += wrapped(sentence, width, 0) + "\n";
  out += "\n";
  for (const Fact& fact : facts(c, subject))
    out += paint.dim(fmt::format("{:<{}}", fact.label, kLabel)) +
           wrapped(fact.text, width, kLabel) + "\n";
  if (!stations(c).empty())
    out += fmt::format("\n{}\n{}", paint.bold("Drift"), drift_table(c, width, paint));
  if (c.explanation) out += explanation_tables(c, width, paint);
  if (!worst(c, kWorst).empty())
    out += fmt::format("\n{}\n{}", paint.bold("Worst checkpoints"), worst_table(c, width, paint));
  if (!c.notes.empty()) out += fmt::format("\n{}\n", paint.bold("Notes"));
  for (const std::string& note : c.notes)
    out += fmt::format("- {}\n", wrapped(printable(note), width, 2));
  return out;
}

}  // namespace lockstep::report
