#include "report/json.h"

#include "base/shown_text.h"
#include "report/summary.h"

namespace lockstep::report {
namespace {

using nlohmann::ordered_json;
using parity::CheckpointResult;

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

ordered_json ranges_json(std::span<const int64_t> numbers) {
  ordered_json out = ordered_json::array();
  for (const auto& [first, last] : ranges_of(numbers)) out.push_back({first, last});
  return out;
}

ordered_json shape_json(const parity::ErrorShape& shape) {
  return {{"elements", shape.elements},
          {"wrong_elements", shape.wrong_elements},
          {"columns", ranges_json(shape.columns)},
          {"same_columns", shape.same_everywhere},
          {"heads", shape.heads > 0 ? ordered_json(shape.heads) : ordered_json(nullptr)},
          {"wrong_heads", shape.wrong_heads},
          {"rows", shape.rows},
          {"wrong_rows", shape.positions.size()},
          {"positions", ranges_json(shape.positions)}};
}

ordered_json choice_json(const parity::Choice& choice) {
  return {{"position", choice.position},
          {"token", choice.token},
          {"logit", number(choice.logit)},
          {"largest", choice.largest},
          {"largest_logit", number(choice.largest_logit)},
          {"is_largest", choice.is_largest},
          {"tie", choice.tie},
          {"possible", choice.possible}};
}

template <class T, class F>
ordered_json where_there(const std::optional<T>& value, const F& to_json) {
  return value ? ordered_json(to_json(*value)) : ordered_json(nullptr);
}

ordered_json defect_json(const parity::Defect& defect) {
  ordered_json out;
  out["checkpoint"] = defect.checkpoint;
  out["layer"] = defect.layer >= 0 ? ordered_json(defect.layer) : ordered_json(nullptr);
  out["position"] = defect.position;
  out["side"] = parity::name(defect.side);
  put_own(out, defect.own);
  out["after"] = optional(defect.after);
  out["shape"] = where_there(defect.shape, shape_json);
  out["choice"] = where_there(defect.choice, choice_json);
  out["followers"] = defect.followers;
  return out;
}

ordered_json side_json(const parity::SideJudgement& side) {
  ordered_json out;
  out["judged"] = side.judged;
  out["defects"] = side.defects.size();
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
  out["known"] = result.known;
  out["positions"] = result.positions;
  out["share"] = result.share;
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
  out["difference"] = c.prompts ? ordered_json{{"kind", c.prompts->kind}, {"text", c.prompts->text}}
                                : ordered_json(nullptr);
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
          {"tie", fork.tie},
          {"sampled", fork.sampled},
          {"reference", where_there(fork.reference, choice_json)},
          {"suspect", where_there(fork.suspect, choice_json)}};
}

ordered_json choices_json(const parity::Comparison& c) {
  const auto side = [](const parity::SideChoices& choices) -> ordered_json {
    return {{"sampling", parity::describe(choices.sampling)},
            {"made", choices.made},
            {"checked", choices.checked},
            {"not_largest", choices.not_largest},
            {"ties", choices.ties},
            {"impossible", where_there(choices.impossible, choice_json)}};
  };
  return {
      {"compared", c.choices.compared},
      {"same", c.choices.same},
      {"mean_kl", c.choices.divergences > 0 ? number(c.choices.mean_kl()) : ordered_json(nullptr)},
      {"worst_kl", c.choices.divergences > 0 ? number(c.choices.worst_kl) : ordered_json(nullptr)},
      {"reference", side(c.reference.choices)},
      {"suspect", side(c.suspect.choices)}};
}

ordered_json evidence_json(const parity::Evidence& evidence) {
  return {{"enough", evidence.enough()},
          {"sampled", evidence.sampled},
          {"needed", evidence.needed},
          {"found", evidence.found},
          {"missing", evidence.enough() ? ordered_json(nullptr) : ordered_json(evidence.missing)}};
}

ordered_json parameters_json(const std::vector<doctor::Parameter>& parameters) {
  ordered_json out = ordered_json::object();
  for (const doctor::Parameter& parameter : parameters)
    out[parameter.name] = std::visit(
        [](const auto& value) -> ordered_json {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>)
            return number(value);
          else
            return value;
        },
        parameter.value);
  return out;
}

ordered_json diagnoses_json(const Subject& subject) {
  ordered_json out = ordered_json::array();
  for (const doctor::Diagnosis& d : subject.diagnoses)
    out.push_back({{"cause", d.cause},
                   {"text", d.text},
                   {"parameters", parameters_json(d.parameters)},
                   {"side", parity::name(d.side)},
                   {"checkpoint", d.checkpoint},
                   {"layers", d.layers},
                   {"positions", d.positions},
                   {"proof", d.proved ? "proved" : "consistent"},
                   {"evidence",
                    {{"rows", d.rows},
                     {"explained", d.explained},
                     {"ratio_before", number(d.ratio_before)},
                     {"ratio_after", number(d.ratio_after)}}},
                   {"fix", d.fix},
                   {"alternatives", d.alternatives}});
  return out;
}

ordered_json working_json(const doctor::Working& working) {
  if (working.formula.empty()) return nullptr;
  ordered_json parts = ordered_json::array();
  for (const doctor::Working::Part& part : working.parts) {
    ordered_json factors = ordered_json::array();
    for (const double factor : part.factors) factors.push_back(number(factor));
    parts.push_back({{"name", part.name}, {"value", number(part.value)}, {"factors", factors}});
  }
  return {{"formula", working.formula},
          {"parts", parts},
          {"others", working.others},
          {"others_sum", number(working.others_sum)}};
}

ordered_json parts_json(const parity::Parts& parts) {
  ordered_json out;
  out["difference"] = number(parts.relative());
  for (size_t p = 0; p < parity::kOrigins; ++p) {
    const auto origin = static_cast<parity::Origin>(p);
    out[std::string(parity::name(origin))] = number(parts.relative(origin));
  }
  for (size_t p = 0; p < parity::kOrigins; ++p) {
    const auto origin = static_cast<parity::Origin>(p);
    out["shares"][std::string(parity::name(origin))] = number(parts.share(origin));
  }
  return out;
}

ordered_json explained_values_json(const std::vector<parity::ExplainedValue>& values) {
  constexpr const char* kWorks[] = {"product", "attention", "other", "several"};
  ordered_json out = ordered_json::array();
  for (const parity::ExplainedValue& value : values) {
    ordered_json tensors = ordered_json::array();
    for (const parity::ExplainedValue::Tensor& tensor : value.tensors)
      tensors.push_back({{"name", tensor.name},
                         {"reference_format", tensor.reference_format},
                         {"suspect_format", tensor.suspect_format}});
    ordered_json made = {
        {"checkpoint", value.checkpoint},
        {"layer", value.layer >= 0 ? ordered_json(value.layer) : ordered_json(nullptr)},
        {"positions", value.positions},
        {"work", kWorks[static_cast<size_t>(value.work)]},
        {"tensors", tensors}};
    made.update(parts_json(value.parts));
    out.push_back(std::move(made));
  }
  return out;
}

ordered_json explained_choices_json(const parity::ExplainedChoices& c) {
  ordered_json out = {{"positions", c.positions}, {"kl", number(c.divergence)}};
  for (const parity::Origin origin :
       {parity::Origin::kWeights, parity::Origin::kRounding, parity::Origin::kReferenceRounding})
    out[std::string(parity::name(origin))] = number(c.parts[static_cast<size_t>(origin)]);
  out["alone"] = {{"weights", number(c.weights_alone)},
                  {"rounding", number(c.rounding_alone)},
                  {"reference_rounding", number(c.reference_rounding_alone)}};
  out["same"] = c.same;
  out["same_by_weights"] = c.same_by_weights;
  return out;
}

ordered_json explanation_json(const parity::Comparison& c) {
  if (!c.explanation) return nullptr;
  const parity::Explanation& e = *c.explanation;
  return {
      {"text", explanation_sentences(c)},
      {"weights_differ", e.weights_differ},
      {"settings", e.settings},
      {"next_token", where_there(e.choices, explained_choices_json)},
      {"no_next_token", e.no_choices.empty() ? ordered_json(nullptr) : ordered_json(e.no_choices)},
      {"layers", explained_values_json(e.layers)},
      {"values", explained_values_json(e.values)}};
}

}  // namespace

ordered_json element_json(const doctor::Diagnosis& diagnosis) {
  return where_there(diagnosis.element, [](const doctor::Element& element) {
    return ordered_json{{"position", element.position},
                        {"place", element.place},
                        {"recorded", number(element.recorded)},
                        {"expected", number(element.expected)},
                        {"found", element.found ? number(*element.found) : ordered_json(nullptr)},
                        {"expected_from", working_json(element.right)},
                        {"found_from", working_json(element.wrong)}};
  });
}

ordered_json comparison_json(const parity::Comparison& c, const Subject& subject) {
  ordered_json out;
  out["parity"] = c.parity;
  out["verdict"] = c.verdict;
  out["headline"] = headline(c);
  out["first_defect"] = c.first_defect ? defect_json(*c.first_defect) : ordered_json(nullptr);
  out["diagnoses"] = diagnoses_json(subject);
  out["explanation"] = explanation_json(c);
  out["defects"] = c.defects;
  out["coverage"] = number(c.coverage);
  out["judged"] = number(c.judged);
  out["positions"] = {{"compared", c.positions_compared},
                      {"judged", c.positions_judged},
                      {"chosen", c.positions_chosen}};
  out["tokens"] = tokens_json(c, subject);
  out["fork"] = c.fork ? fork_json(*c.fork) : ordered_json(nullptr);
  out["choices"] = choices_json(c);
  out["evidence"] = evidence_json(c.evidence);
  out["unproved"] = c.unproved.empty() ? ordered_json(nullptr) : ordered_json(c.unproved);
  out["seconds"] = number(c.seconds);
  const auto party = [](const Party& p, const parity::SideScopeSummary& side) {
    return ordered_json{
        {"path", p.path},
        {"engine", p.engine},
        {"judged", side.judged},
        {"positions", side.positions},
        {"positions_alone", side.beyond_shared},
        {"assumed", side.assumed.empty() ? ordered_json(nullptr) : ordered_json(side.assumed)},
        {"assumed_precision",
         side.precision.empty() ? ordered_json(nullptr) : ordered_json(side.precision)}};
  };
  out["reference"] = party(subject.reference, c.reference);
  out["suspect"] = party(subject.suspect, c.suspect);
  out["model"] = subject.model.empty() ? ordered_json(nullptr) : ordered_json(subject.model);
  out["suspect_model"] =
      subject.suspect_model.empty() ? ordered_json(nullptr) : ordered_json(subject.suspect_model);
  const auto unknown = [](const parity::UnknownNames& names) {
    ordered_json recorded = ordered_json::array();
    ordered_json nearest = ordered_json::object();
    for (const auto& [name, near] : names.recorded) {
      recorded.push_back(name);
      if (!near.empty()) nearest[name] = near;
    }
    return ordered_json{
        {"recorded", recorded}, {"nearest", nearest}, {"not_recorded", names.not_recorded}};
  };
  out["unknown_names"] = {{"reference", unknown(c.unknown_in_reference)},
                          {"suspect", unknown(c.unknown_in_suspect)}};
  out["notes"] = c.notes;
  out["checkpoints"] = ordered_json::array();
  for (const CheckpointResult& result : c.checkpoints)
    out["checkpoints"].push_back(checkpoint_json(result));
  return out;
}

std::string json_report(const parity::Comparison& c, const Subject& subject) {
  return json_text(comparison_json(c, subject), 1) + "\n";
}

std::string diagnosis_json(const parity::Comparison& c, const Subject& subject) {
  ordered_json out;
  out["parity"] = c.parity;
  out["verdict"] = c.verdict;
  out["headline"] = headline(c);
  out["first_defect"] = c.first_defect ? defect_json(*c.first_defect) : ordered_json(nullptr);
  out["diagnoses"] = diagnoses_json(subject);
  for (size_t i = 0; i < subject.diagnoses.size(); ++i) {
    const doctor::Diagnosis& d = subject.diagnoses[i];
    ordered_json attempts = ordered_json::array();
    for (const doctor::Attempt& attempt : d.attempts)
      attempts.push_back(
          {{"cause", attempt.cause},
           {"text", attempt.text},
           {"error", number(attempt.error)},
           {"ratio", attempt.ratio < 0 ? ordered_json(nullptr) : number(attempt.ratio)}});
    out["diagnoses"][i]["checkpoints"] = d.checkpoints;
    out["diagnoses"][i]["tried"] = d.tried;
    out["diagnoses"][i]["error_before"] = number(d.error_before);
    out["diagnoses"][i]["attempts"] = std::move(attempts);
    out["diagnoses"][i]["element"] = element_json(d);
  }
  return json_text(out, 1) + "\n";
}

}  // namespace lockstep::report
