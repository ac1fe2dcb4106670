// What the HTML report shows beyond `compare --json`: every row, tokens, and opened rows.
#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "base/shown_text.h"
#include "lockstep/detail/checkpoints.h"
#include "report/json.h"
#include "report/packed.h"
#include "report/summary.h"

namespace lockstep::report {
namespace {

using nlohmann::ordered_json;
using parity::CheckpointResult;
using parity::Comparison;

// All that either side has, of any checkpoint.
std::vector<int64_t> positions_shown(const Comparison& c) {
  std::vector<int64_t> out;
  const auto add = [&](const auto& rows, auto position) {
    std::vector<int64_t> some;
    for (const auto& row : rows) some.push_back(position(row));
    if (std::ranges::includes(out, some)) return;
    std::vector<int64_t> both;
    std::ranges::set_union(out, some, std::back_inserter(both));
    out = std::move(both);
  };
  const auto position_of = [](const auto& row) { return row.position; };
  for (const CheckpointResult& result : c.checkpoints) {
    add(result.rows.compared, position_of);
    add(result.reference.rows, position_of);
    add(result.suspect.rows, position_of);
    add(result.rows.only_reference, std::identity());
    add(result.rows.only_suspect, std::identity());
  }
  return out;
}

enum Measure { kOwnReference, kOwnSuspect, kRelative, kInherited, kMeasures };
constexpr const char* kMeasureNames[kMeasures] = {"own_reference", "own_suspect", "relative_l2",
                                                  "inherited"};
using Codes = std::array<std::vector<uint16_t>, kMeasures>;  // [checkpoints, columns] each

class RowMap {
 public:
  explicit RowMap(const Comparison& c) : c_(c), positions_(positions_shown(c)) {
    for (auto& codes : codes_) codes.resize(c.checkpoints.size() * positions_.size());
    for (size_t i = 0; i < c.checkpoints.size(); ++i) fill(i);
  }

  const std::vector<int64_t>& positions() const { return positions_; }

  // `group` neighbouring positions in each column, the worst of them shown.
  ordered_json json(size_t group) const {
    ordered_json out;
    const size_t columns = (positions_.size() + group - 1) / group;
    for (size_t m = 0; m < kMeasures; ++m) {
      std::vector<uint16_t> merged(c_.checkpoints.size() * columns);
      for (size_t row = 0; row < c_.checkpoints.size(); ++row)
        for (size_t i = 0; i < positions_.size(); ++i) {
          uint16_t& code = merged[row * columns + i / group];
          code = std::max(code, codes_[m][row * positions_.size() + i]);
        }
      out[kMeasureNames[m]] = packed(merged);
    }
    return out;
  }

 private:
  uint16_t& at(Measure measure, size_t row, int64_t position) {
    const auto column = std::ranges::lower_bound(positions_, position) - positions_.begin();
    return codes_[measure][row * positions_.size() + static_cast<size_t>(column)];
  }

  void fill(size_t row) {
    const CheckpointResult& result = c_.checkpoints[row];
    for (const int64_t position : result.rows.only_reference)
      at(kOwnReference, row, position) = kNotJudgedCode;
    for (const int64_t position : result.rows.only_suspect)
      at(kOwnSuspect, row, position) = kNotJudgedCode;
    std::map<int64_t, double> own_squares;
    const auto judged = [&](Measure measure, const parity::SideJudgement& side) {
      for (const parity::RowError& own : side.rows) {
        at(measure, row, own.position) = size_code(own.ratio);
        at(kRelative, row, own.position) = at(kInherited, row, own.position) = kNotJudgedCode;
        own_squares[own.position] +=
            static_cast<double>(own.error) * static_cast<double>(own.error);
      }
    };
    for (const parity::RowDifference& compared : result.rows.compared)
      at(kOwnReference, row, compared.position) = at(kOwnSuspect, row, compared.position) =
          at(kInherited, row, compared.position) = kNotJudgedCode;
    judged(kOwnReference, result.reference);
    judged(kOwnSuspect, result.suspect);
    for (const int64_t position : result.rows.only_reference)
      at(kRelative, row, position) = at(kInherited, row, position) = kMissingCode;
    for (const int64_t position : result.rows.only_suspect)
      at(kRelative, row, position) = at(kInherited, row, position) = kMissingCode;
    for (const parity::RowDifference& compared : result.rows.compared) {
      at(kRelative, row, compared.position) = size_code(compared.relative_l2);
      const auto own = own_squares.find(compared.position);
      if (own == own_squares.end()) continue;
      // What is left of the difference where the own errors of both sides are taken out.
      const double whole =
          static_cast<double>(compared.difference) * static_cast<double>(compared.difference);
      const double left = whole > 0 ? std::max(0.0, 1 - own->second / whole) : 0;
      at(kInherited, row, compared.position) =
          size_code(left > 0 ? compared.relative_l2 * std::sqrt(left) : 0);
    }
  }

  const Comparison& c_;
  std::vector<int64_t> positions_;
  Codes codes_;
};

ordered_json formulas_json(const Comparison& c) {
  ordered_json out = ordered_json::object();
  for (const CheckpointResult& result : c.checkpoints)
    if (const auto* row = detail::find_checkpoint(result.name))
      out[std::string(detail::checkpoint_leaf(row->name))] = {
          {"formula", row->formula}, {"shape", row->shape}, {"notes", row->notes}};
  return out;
}

ordered_json side_tokens_json(const parity::SideTokens& tokens, size_t most) {
  const size_t count = std::min(most, tokens.ids.size());
  const auto first = [&](const auto& all) {
    return std::vector(all.begin(),
                       all.begin() + static_cast<int64_t>(std::min(count, all.size())));
  };
  return {
      {"ids", first(tokens.ids)},
      {"prompt", tokens.prompt},
      {"texts", tokens.texts.empty() ? ordered_json(nullptr) : ordered_json(first(tokens.texts))}};
}

ordered_json logits_json(const Comparison& c) {
  ordered_json out = ordered_json::array();
  for (const auto& [position, m] : c.logits)
    out.push_back({position, m.reference_choice, m.suspect_choice, number(m.reference_margin),
                   number(m.suspect_margin),
                   m.kl_divergence ? number(*m.kl_divergence) : ordered_json(nullptr)});
  return out;
}

template <class T>
std::string raw_base64(const std::vector<T>& numbers) {
  return base64(std::as_bytes(std::span(numbers)));
}

ordered_json numbers_json(const std::vector<double>& numbers) {
  ordered_json out = ordered_json::array();
  for (const double value : numbers) out.push_back(number(value));
  return out;
}

ordered_json opened_json(const parity::OpenedRow& row) {
  ordered_json heads = ordered_json::array();
  for (const auto& head : row.heads) heads.push_back({number(head.error), number(head.rounding)});
  ordered_json inputs = ordered_json::array();
  for (const auto& input : row.inputs)
    inputs.push_back({{"name", input.name},
                      {"width", input.width},
                      {"recorded", input.recorded},
                      {"rms", number(input.root_mean_square)},
                      {"largest", number(input.largest)},
                      {"by_element", input.by_element}});
  ordered_json worst = ordered_json::array();
  for (const auto& element : row.worst)
    worst.push_back({{"element", element.index},
                     {"recorded", number(element.recorded)},
                     {"expected", number(element.expected)},
                     {"ratio", number(element.ratio)},
                     {"inputs", numbers_json(element.inputs)}});
  return {{"checkpoint", row.checkpoint},
          {"position", row.position},
          {"side", parity::name(row.side)},
          {"ratio", number(row.ratio)},
          {"error", number(row.error)},
          {"bound", number(row.bound)},
          {"elements", row.elements},
          {"keys", row.keys > 0 ? ordered_json(row.keys) : ordered_json(nullptr)},
          {"heads", heads},
          {"inputs", inputs},
          {"worst", worst},
          {"histogram", row.histogram},
          {"points",
           {{"index", raw_base64(row.index)},
            {"recorded", raw_base64(row.recorded)},
            {"error", raw_base64(row.errors)}}}};
}

// The row as a cause that was found makes it, where the doctor worked that out.
ordered_json hypothesis_json(const parity::OpenedRow& row,
                             const std::vector<doctor::Diagnosis>& diagnoses) {
  for (const doctor::Diagnosis& d : diagnoses) {
    if (!d.element || d.side != row.side || d.checkpoint != row.checkpoint) continue;
    for (const auto& [position, numbers] : d.element->rows) {
      if (position != row.position || std::ssize(numbers) != row.elements) continue;
      std::vector<float> points;
      for (const int32_t index : row.index) points.push_back(numbers[static_cast<size_t>(index)]);
      ordered_json worst = ordered_json::array();
      for (const auto& element : row.worst)
        worst.push_back(number(static_cast<double>(numbers[static_cast<size_t>(element.index)])));
      return {{"cause", d.cause}, {"points", raw_base64(points)}, {"worst", worst}};
    }
  }
  return nullptr;
}

ordered_json explained_json(const Comparison& c) {
  // What lies behind the layers has gone through all of them.
  ordered_json out = ordered_json::array();
  double most = 0;
  for (const CheckpointResult& result : c.checkpoints) {
    most = std::max(most, result.rows.allowed);
    out.push_back(number(most));
  }
  return out;
}

int64_t text_bytes(const ordered_json& json) {
  return std::ssize(json_text(json));
}

void put_rows(const Comparison& c, int64_t limit, ordered_json& page, ordered_json& left_out) {
  const RowMap map(c);
  size_t group = 1;
  ordered_json rows = map.json(group);
  while (text_bytes(rows) > limit && group < map.positions().size()) {
    group *= 2;
    rows = map.json(group);
  }
  ordered_json ranges = ordered_json::array();
  for (const auto& [first, last] : ranges_of(map.positions())) ranges.push_back({first, last});
  page["positions"] = std::move(ranges);
  page["group"] = group;
  page["rows"] = std::move(rows);
  if (group > 1)
    left_out.push_back(fmt::format(
        "The map has a column for every {} positions, which shows the worst of them.", group));
}

}  // namespace

ordered_json page_json(const Comparison& c, const Subject& subject, int64_t limit) {
  ordered_json out = comparison_json(c, subject);
  ordered_json page;
  ordered_json left_out = ordered_json::array();
  page["program"] = LOCKSTEP_VERSION;
  page["elements"] = ordered_json::array();
  for (const doctor::Diagnosis& d : subject.diagnoses) page["elements"].push_back(element_json(d));
  page["evidence"] = evidence(c, subject);
  page["facts"] = ordered_json::array();
  for (const Fact& fact : facts(c, subject))
    page["facts"].push_back({{"label", fact.label}, {"text", fact.text}});
  page["formulas"] = formulas_json(c);
  page["explained"] = explained_json(c);
  page["logits"] = logits_json(c);
  put_rows(c, limit / 4 * 3, page, left_out);
  // A token takes about 16 bytes.
  const auto most = static_cast<size_t>(limit / 4 / 32);
  page["tokens"] = {{"reference", side_tokens_json(c.reference_tokens, most)},
                    {"suspect", side_tokens_json(c.suspect_tokens, most)}};
  if (std::max(c.reference_tokens.ids.size(), c.suspect_tokens.ids.size()) > most)
    left_out.push_back(fmt::format("Of the tokens, the first {} are shown.", most));
  page["opened"] = ordered_json::array();
  int64_t bytes = text_bytes(out) + text_bytes(page);
  int64_t closed = c.not_opened;
  for (const parity::OpenedRow& row : c.opened) {
    ordered_json made = opened_json(row);
    made["hypothesis"] = hypothesis_json(row, subject.diagnoses);
    bytes += text_bytes(made);
    if (bytes <= limit)
      page["opened"].push_back(std::move(made));
    else
      closed += row.ratio > 1 ? 1 : 0;
  }
  if (closed > 0)
    left_out.push_back(fmt::format(
        "The numbers of {} rows are shown, the worst ones; {} more that are wrong are left out.",
        page["opened"].size(), closed));
  page["left_out"] = std::move(left_out);
  out["page"] = std::move(page);
  return out;
}

}  // namespace lockstep::report
