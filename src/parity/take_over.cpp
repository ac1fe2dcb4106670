// What parts have found, checked against the traces: the rest of a comparison reads rows at the
// positions that it is told.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "parity/part.h"

namespace lockstep::parity {
namespace {

Result<void> same(const Identity& found, const Identity& expected, const std::string& source) {
  const auto text = [](const std::string& value) {
    return value.empty() ? std::string("none") : printable(value, 64);
  };
  const std::pair<const char*, std::string Identity::*> fields[] = {
      {"version of the program", &Identity::program},
      {"reference trace", &Identity::reference},
      {"suspect trace", &Identity::suspect},
      {"model", &Identity::model},
      {"model of the suspect", &Identity::other_model},
      {"choice of checkpoints", &Identity::checkpoints}};
  for (const auto& [what, field] : fields)
    if (found.*field != expected.*field)
      return error("{}: of another {}: found {}, expected {}", printable(source), what,
                   text(found.*field), text(expected.*field));
  if (found.positions != expected.positions)
    return error("{}: of another choice of positions", printable(source));
  return {};
}

// Rising, and each of `allowed`.
template <class Rows, class Position>
bool are_among(const Rows& rows, const Position& position, const std::vector<int64_t>& allowed) {
  int64_t before = -1;
  for (const auto& row : rows) {
    const int64_t at = position(row);
    if (at <= before || !std::ranges::binary_search(allowed, at)) return false;
    before = at;
  }
  return true;
}

constexpr auto kPositionOf = [](const auto& row) { return row.position; };

bool fits(const OwnError& own, const std::string& name, const SideScope& side) {
  const auto row = side.trace->row(name, own.position);
  // An element of scores is counted in lines that are as long as those of any position.
  return row && own.worst_index >= 0 &&
         own.worst_index < row->lines * std::max(row->width, side.trace->positions());
}

bool fits(const SideJudgement& judged, const std::string& name, const SideScope& side,
          const Scope& scope) {
  const bool possible = side.judged() && scope.ids.contains(name) && side.trace->has(name);
  if (judged.rows.empty() || !possible)
    return judged.rows.empty() && judged.defects.empty() && !judged.worst && !judged.first_defect;
  std::vector<int64_t> positions;
  for (const RowError& row : judged.rows) positions.push_back(row.position);
  return are_among(judged.rows, kPositionOf, side.replayed) &&
         std::ranges::all_of(positions,
                             [&](int64_t p) { return side.trace->row(name, p).has_value(); }) &&
         are_among(judged.defects, std::identity(), positions) && judged.worst &&
         fits(*judged.worst, name, side) &&
         judged.first_defect.has_value() == !judged.defects.empty() &&
         (!judged.first_defect || (judged.first_defect->position == judged.defects[0] &&
                                   fits(*judged.first_defect, name, side)));
}

bool fits(const CheckpointResult& found, const CheckpointResult& listed, const Scope& scope) {
  const auto& compared = found.rows.compared;
  const auto among = [&](int64_t position) {
    return std::ranges::find(compared, position, &RowDifference::position) != compared.end();
  };
  const bool possible = listed.comparable && listed.in_reference && listed.in_suspect;
  return (possible || compared.empty()) && are_among(compared, kPositionOf, scope.compared) &&
         (compared.empty() ? found.worst_position == 0 : among(found.worst_position)) &&
         (!found.first_beyond || among(found.first_beyond->position)) &&
         fits(found.reference, found.name, scope.reference, scope) &&
         fits(found.suspect, found.name, scope.suspect, scope);
}

void count(SideJudgement& judged, const Scope& scope) {
  judged.judged = std::ssize(judged.rows);
  judged.judged_shared = std::ranges::count_if(judged.rows, [&](const RowError& row) {
    return std::ranges::binary_search(scope.compared, row.position);
  });
  if (!scope.keeps_rows) judged.rows.clear();
}

// Only what was measured and judged: the rest is known here.
void put(CheckpointResult found, const Scope& scope, CheckpointResult& out) {
  out.positions = std::ssize(found.rows.compared);
  out.metrics = found.metrics;
  out.worst_position = found.worst_position;
  out.worst_relative_l2 = found.worst_relative_l2;
  out.first_beyond = found.first_beyond;
  out.seconds = found.seconds;
  out.reference = std::move(found.reference);
  out.suspect = std::move(found.suspect);
  count(out.reference, scope);
  count(out.suspect, scope);
  if (scope.keeps_rows) out.rows.compared = std::move(found.rows.compared);
}

bool fits(const Runs& runs, const SideScope& side) {
  return runs.empty() || runs.back().second < std::ssize(side.tokens);
}

// Parts derive a choice that more than one of them needs each by itself.
Result<void> add(const DerivedChoices& found, const SideScope& side, const Scope& scope,
                 const std::string& source, DerivedChoices& out) {
  for (const auto& [name, of] : found.by_checkpoint) {
    if (!side.judged() || !scope.ids.contains(name) || !fits(of.all, side) || !fits(of.open, side))
      return error("{}: {}: has choices that the traces do not have", printable(source),
                   printable(name, 80));
    DerivedChoices::Of& all = out.by_checkpoint[name];
    all = {united(std::move(all.all), of.all), united(std::move(all.open), of.open)};
  }
  return {};
}

}  // namespace

Result<void> take_over(const std::vector<Findings>& parts, const Traces& traces,
                       const model::Model* model, const CompareOptions& options, const Scope& scope,
                       Comparison& out) {
  const Identity identity = identity_of(traces, model, options);
  std::vector<Part> which;
  std::vector<std::string> sources;
  for (const Findings& part : parts) {
    LS_TRY_VOID(same(part.identity, identity, part.source));
    which.push_back(part.part);
    sources.push_back(part.source);
  }
  LS_TRY_VOID(check_parts(which, sources));
  std::map<std::string, CheckpointResult*> missing;
  for (CheckpointResult& result : out.checkpoints) missing[result.name] = &result;
  for (const Findings& part : parts) {
    for (const CheckpointResult& found : part.checkpoints) {
      const auto at = missing.find(found.name);
      if (at == missing.end() || at->second == nullptr)
        return error("{}: {}: {}", printable(part.source), printable(found.name, 80),
                     at == missing.end() ? "the traces have no such checkpoint"
                                         : "another part has this checkpoint too");
      if (!fits(found, *at->second, scope))
        return error("{}: {}: has rows that the traces do not have", printable(part.source),
                     printable(found.name, 80));
      put(found, scope, *at->second);
      at->second = nullptr;
      if (found.name != "logits") continue;
      if (!are_among(part.logits, kPositionOf, scope.compared))
        return error("{}: logits: has positions that the traces do not have",
                     printable(part.source));
      out.choices = part.choices;
      if (scope.keeps_rows) out.logits = part.logits;
    }
    LS_TRY_VOID(
        add(part.reference_experts, scope.reference, scope, part.source, out.reference.experts));
    LS_TRY_VOID(add(part.suspect_experts, scope.suspect, scope, part.source, out.suspect.experts));
    if (!part.failure.empty())
      out.notes.push_back(
          fmt::format("part {} of {}: the GPU was given up, and the CPU did the rest of the work: "
                      "{}",
                      part.part.index, part.part.of, part.failure));
    out.seconds += part.seconds;
  }
  for (const auto& [name, result] : missing)
    if (result != nullptr) return error("no part has the checkpoint {}", name);
  return {};
}

}  // namespace lockstep::parity
