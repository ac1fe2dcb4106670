// Writes the file of a part: JSON. Numbers come back with the same bits; those that JSON has no
// words for are texts, and the numbers of single rows, of which there may be millions, are
// hexadecimal digits.
#include <bit>
#include <cmath>

#include "base/shown_text.h"
#include "parity/part.h"

namespace lockstep::parity {
namespace {

using nlohmann::ordered_json;

ordered_json exact(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

template <class T, class F>
ordered_json if_there(const std::optional<T>& value, const F& to_json) {
  return value ? ordered_json(to_json(*value)) : ordered_json(nullptr);
}

ordered_json own_json(const OwnError& own) {
  return {own.position,           exact(own.error),    exact(own.expected), own.worst_index,
          exact(own.worst_ratio), exact(own.recorded), exact(own.replayed), own.non_finite};
}

ordered_json metrics_json(const Metrics& m) {
  const auto counts = [](const Counts& c) -> ordered_json {
    return {c.nan, c.infinite, c.negative_zero, c.denormal};
  };
  return {m.elements,
          m.differing,
          m.non_finite_differs,
          exact(m.max_difference),
          m.max_index,
          exact(m.sum_difference),
          exact(m.squares_difference),
          exact(m.squares_reference),
          exact(m.squares_suspect),
          exact(m.products),
          m.sign_flips,
          counts(m.reference),
          counts(m.suspect)};
}

// First and last of each run of neighbours.
template <class Rows, class Position>
ordered_json runs_json(const Rows& rows, const Position& position) {
  ordered_json out = ordered_json::array();
  for (const auto& row : rows) {
    const int64_t at = position(row);
    if (!out.empty() && out.back()[1] == at - 1)
      out.back()[1] = at;
    else
      out.push_back({at, at});
  }
  return out;
}

template <class Row>
ordered_json rows_json(const std::vector<Row>& rows, float Row::*first, float Row::*second) {
  const auto digits = [&](float Row::*field) {
    std::string out;
    for (const Row& row : rows) out += fmt::format("{:08x}", std::bit_cast<uint32_t>(row.*field));
    return out;
  };
  return {{"positions", runs_json(rows, [](const Row& row) { return row.position; })},
          {"numbers", {digits(first), digits(second)}}};
}

ordered_json judgement_json(const SideJudgement& side) {
  return {{"rows", rows_json(side.rows, &RowError::ratio, &RowError::error)},
          {"defects", runs_json(side.defects, std::identity())},
          {"worst", if_there(side.worst, own_json)},
          {"first_defect", if_there(side.first_defect, own_json)}};
}

ordered_json checkpoint_json(const CheckpointResult& result) {
  return {
      {"name", result.name},
      {"metrics", metrics_json(result.metrics)},
      {"worst_position", result.worst_position},
      {"worst_relative_l2", exact(result.worst_relative_l2)},
      {"first_beyond",
       if_there(result.first_beyond,
                [](const Beyond& beyond) -> ordered_json {
                  return {{"position", beyond.position}, {"metrics", metrics_json(beyond.metrics)}};
                })},
      {"rows",
       rows_json(result.rows.compared, &RowDifference::relative_l2, &RowDifference::difference)},
      {"reference", judgement_json(result.reference)},
      {"suspect", judgement_json(result.suspect)},
      {"seconds", exact(result.seconds)}};
}

ordered_json logits_json(const PositionLogits& logits) {
  const LogitMetrics& m = logits.metrics;
  return {logits.position,           m.reference_choice,      m.suspect_choice,
          exact(m.reference_margin), exact(m.suspect_margin), if_there(m.kl_divergence, exact),
          exact(m.top10_overlap)};
}

ordered_json experts_json(const DerivedChoices& choices) {
  ordered_json out = ordered_json::array();
  for (const auto& [name, of] : choices.by_checkpoint) out.push_back({name, of.all, of.open});
  return out;
}

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

}  // namespace

std::string to_json(const Findings& all) {
  const Identity& identity = all.identity;
  ordered_json out;
  out["format"] = "lockstep-part";
  out["version"] = 1;
  out["program"] = identity.program;
  out["part"] = {{"index", all.part.index}, {"of", all.part.of}};
  const auto party = [](const std::string& path, const std::string& fingerprint) -> ordered_json {
    return {{"path", text_or_null(path)}, {"fingerprint", text_or_null(fingerprint)}};
  };
  out["reference"] = party(all.paths.reference, identity.reference);
  out["suspect"] = party(all.paths.suspect, identity.suspect);
  out["model"] = party(all.paths.model, identity.model);
  out["suspect_model"] = party(all.paths.suspect_model, identity.other_model);
  out["names"] = text_or_null(all.paths.names);
  out["selected"] = {{"checkpoints", identity.checkpoints}, {"positions", identity.positions}};
  out["seconds"] = exact(all.seconds);
  out["gpu_failure"] = text_or_null(all.failure);
  out["choices"] = {all.choices.compared, all.choices.same, all.choices.divergences,
                    exact(all.choices.sum_kl), exact(all.choices.worst_kl)};
  out["logits"] = ordered_json::array();
  for (const PositionLogits& logits : all.logits) out["logits"].push_back(logits_json(logits));
  out["experts"] = {{"reference", experts_json(all.reference_experts)},
                    {"suspect", experts_json(all.suspect_experts)}};
  out["checkpoints"] = ordered_json::array();
  for (const CheckpointResult& result : all.checkpoints)
    out["checkpoints"].push_back(checkpoint_json(result));
  return json_text(out) + "\n";
}

}  // namespace lockstep::parity
