#include <cmath>

#include <nlohmann/json.hpp>

#include "report/summary.h"

namespace lockstep::report {
namespace {

using nlohmann::ordered_json;
using parity::CheckpointResult;

// JSON has no word for infinities and NaN: they are null.
ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

template <class T>
ordered_json optional(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

// Fields that first_defect and the judgements of checkpoints share.
void put_own(ordered_json& out, const parity::OwnError& own) {
  const BoundedError judged = bounded(own);
  out["own_error"] = number(judged.error);
  out["bound"] = number(judged.bound);
  out["ratio"] = own.non_finite ? ordered_json(nullptr) : number(own.ratio());
  out["measure"] = name(judged.measure);
  out["element"] = own.worst_index;
  out["recorded"] = number(own.recorded);
  out["replayed"] = number(own.replayed);
}

ordered_json defect_json(const parity::Defect& defect) {
  ordered_json out;
  out["checkpoint"] = defect.checkpoint;
  out["layer"] = defect.layer >= 0 ? ordered_json(defect.layer) : ordered_json(nullptr);
  out["position"] = defect.position;
  out["side"] = parity::name(defect.side);
  put_own(out, defect.own);
  return out;
}

ordered_json side_json(const parity::SideJudgement& side) {
  ordered_json out;
  out["judged"] = side.judged;
  out["first_defect_position"] =
      side.first_defect ? ordered_json(side.first_defect->position) : ordered_json(nullptr);
  if (!side.worst) return out;
  out["worst_position"] = side.worst->position;
  put_own(out, *side.worst);
  return out;
}

ordered_json counts_json(const parity::Counts& counts) {
  return {{"nan", counts.nan},
          {"infinite", counts.infinite},
          {"negative_zero", counts.negative_zero},
          {"denormal", counts.denormal}};
}

ordered_json checkpoint_json(const CheckpointResult& result) {
  const parity::Metrics& m = result.metrics;
  ordered_json out;
  out["name"] = result.name;
  out["layer"] = result.layer >= 0 ? ordered_json(result.layer) : ordered_json(nullptr);
  out["verdict"] = parity::name(result.verdict);
  out["in_reference"] = result.in_reference;
  out["in_suspect"] = result.in_suspect;
  out["positions"] = result.positions;
  out["elements"] = m.elements;
  out["differing"] = m.differing;
  out["non_finite_differs"] = m.non_finite_differs;
  out["max_difference"] = number(m.max_difference);
  out["mean_difference"] = number(m.mean_difference());
  out["relative_l2"] = number(m.relative_l2());
  out["nmse"] = number(m.nmse());
  out["cosine"] = number(m.cosine());
  out["sign_flips"] = m.sign_flips;
  out["magnitude_orders"] = number(m.magnitude_orders());
  out["worst_position"] = result.worst_position;
  out["worst_relative_l2"] = number(result.worst_relative_l2);
  out["reference"] = side_json(result.reference);
  out["suspect"] = side_json(result.suspect);
  out["reference"]["values"] = counts_json(m.reference);
  out["suspect"]["values"] = counts_json(m.suspect);
  return out;
}

ordered_json tokens_json(const parity::Comparison& c, const Subject& subject) {
  ordered_json out;
  out["agree"] = c.tokens.agree && c.tokens.same_prompt;
  out["first_difference"] = optional(c.tokens.first_difference);
  out["same_prompt"] = c.tokens.same_prompt;
  out["known"] = c.tokens.known;
  out["shared"] = c.tokens.shared;
  out["offset"] = optional(c.tokens.offset);
  if (!subject.difference) return out;
  const TokenPair& pair = *subject.difference;
  out["reference"] = {{"id", optional(pair.reference)}, {"text", optional(pair.reference_text)}};
  out["suspect"] = {{"id", optional(pair.suspect)}, {"text", optional(pair.suspect_text)}};
  return out;
}

ordered_json fork_json(const parity::Fork& fork) {
  return {{"position", fork.position},
          {"reference_token", fork.reference_token},
          {"suspect_token", fork.suspect_token},
          {"margin", number(fork.margin)},
          {"difference", number(fork.difference)},
          {"tie", fork.tie}};
}

}  // namespace

std::string json_report(const parity::Comparison& c, const Subject& subject) {
  ordered_json out;
  out["parity"] = c.parity;
  out["verdict"] = c.verdict;
  out["headline"] = headline(c);
  out["first_defect"] = c.first_defect ? defect_json(*c.first_defect) : ordered_json(nullptr);
  out["defects"] = c.defects;
  out["coverage"] = number(c.coverage);
  out["judged"] = number(c.judged);
  out["positions"] = {{"compared", c.positions_compared},
                      {"judged", c.positions_judged},
                      {"chosen", c.positions_chosen}};
  out["tokens"] = tokens_json(c, subject);
  out["fork"] = c.fork ? fork_json(*c.fork) : ordered_json(nullptr);
  out["choices"] = {{"compared", c.choices.compared},
                    {"same", c.choices.same},
                    {"mean_kl", number(c.choices.mean_kl)},
                    {"worst_kl", number(c.choices.worst_kl)}};
  const auto party = [](const Party& p) {
    return ordered_json{{"path", p.path}, {"engine", p.engine}};
  };
  out["reference"] = party(subject.reference);
  out["suspect"] = party(subject.suspect);
  out["model"] = subject.model.empty() ? ordered_json(nullptr) : ordered_json(subject.model);
  const auto unknown = [](const parity::UnknownNames& names) {
    return ordered_json{{"recorded", names.recorded}, {"not_recorded", names.not_recorded}};
  };
  out["unknown_names"] = {{"reference", unknown(c.unknown_in_reference)},
                          {"suspect", unknown(c.unknown_in_suspect)}};
  out["notes"] = c.notes;
  out["checkpoints"] = ordered_json::array();
  for (const CheckpointResult& result : c.checkpoints)
    out["checkpoints"].push_back(checkpoint_json(result));
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::report
