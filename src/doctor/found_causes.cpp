#include "doctor/found_causes.h"

#include <algorithm>
#include <cmath>

#include "doctor/decode_hypotheses.h"
#include "doctor/precision_diagnosis.h"
#include "doctor/words.h"

namespace lockstep::doctor {
namespace {

using parity::CheckpointResult;

void join(Diagnosis& diagnosis, const CheckpointResult& result, const Case& wrong,
          const Judgement& judgement) {
  add_checkpoint(diagnosis, result, wrong.wrong);
  diagnosis.rows += std::ssize(wrong.wrong);
  diagnosis.explained += judgement.explained;
  diagnosis.ratio_before = std::max(diagnosis.ratio_before, judgement.explained_before);
  diagnosis.ratio_after = std::max(diagnosis.ratio_after, judgement.explained_ratio);
}

std::string tail_of(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

// The checkpoint that a stretch starts after; empty where an op stands alone.
std::string start_of(const Examination& examination) {
  if (examination.alone()) return "";
  const Case& wrong = examination.patient();
  const parity::Replay replay(wrong.side.forwards.front(), wrong.side.precision, *wrong.side.trace,
                              wrong.side.tokens, wrong.used, wrong.threads, wrong.products);
  const auto after = replay.starts_after(wrong.value, wrong.wrong.front());
  return after && !after->empty() ? *after : std::string("the tokens");
}

}  // namespace

int64_t FoundCauses::named() const {
  return std::ranges::count_if(found_,
                               [](const Found& each) { return each.diagnosis.cause != kUnknown; });
}

bool FoundCauses::joins_known(const CheckpointResult& result, Examination& examination) {
  for (Found& before : found_) {
    if (!before.trial) continue;
    const auto again = try_again(examination, *before.trial);
    if (!again) continue;
    join(before.diagnosis, result, examination.patient(), again->judgement);
    before.trial->ops = again->ops;
    return true;
  }
  return false;
}

bool FoundCauses::joins_unknown(const CheckpointResult& result, const Examination& examination) {
  for (Found& before : found_)
    if (!before.trial && before.diagnosis.cause == kUnknown &&
        tail_of(before.diagnosis.checkpoint) == tail_of(result.name)) {
      join(before.diagnosis, result, examination.patient(), {});
      return true;
    }
  return false;
}

void FoundCauses::add(const CheckpointResult& result, Examination& examination,
                      const Explanation& explanation) {
  if (explanation.chosen.empty()) {
    const auto& nearly = explanation.nearly;
    if (nearly) add_nearly(result, examination, explanation);
    // What rounding leaves within the bound is numbers on the edge of two.
    if (!nearly || !nearly->hypothesis.rounds || !nearly->judgement.whole())
      add_unknown(result, examination, explanation);
    return;
  }
  // Of hypotheses that name a tensor: the same in another layer.
  if (explanation.chosen.size() == 1)
    for (Found& before : found_)
      if (before.trial &&
          same_mistake(before.trial->hypothesis, explanation.chosen[0].hypothesis)) {
        join(before.diagnosis, result, examination.patient(), explanation.chosen[0].judgement);
        return;
      }
  add_chosen(result, examination, explanation);
}

void FoundCauses::add_garbage(const CheckpointResult& result,
                              const std::vector<int64_t>& positions) {
  const auto before = std::ranges::find_if(
      found_, [](const Found& found) { return found.diagnosis.cause == "garbage"; });
  if (before != found_.end()) {
    add_checkpoint(before->diagnosis, result, positions);
    before->diagnosis.rows += std::ssize(positions);
    before->diagnosis.explained += std::ssize(positions);
    return;
  }
  Diagnosis made = begin(result, positions);
  made.cause = "garbage";
  made.proved = true;
  made.explained = made.rows;
  made.parameters = {{"class", std::string("non-finite")}};
  made.ratio_before = INFINITY;
  made.text = "has NaN or infinity, which its inputs do not give";
  made.fix =
      "Look at what wrote this value, at divisions by zero and at numbers that are too large for "
      "their type; 'lockstep scan' tells more of numbers that are none.";
  found_.push_back({std::move(made)});
}

Diagnosis FoundCauses::begin(const CheckpointResult& result,
                             const std::vector<int64_t>& positions) const {
  Diagnosis out;
  out.side = which_;
  add_checkpoint(out, result, positions);
  out.rows = std::ssize(positions);
  return out;
}

Diagnosis FoundCauses::begin(const CheckpointResult& result, const Examination& examination,
                             const Trial& trial) const {
  Diagnosis out = begin(result, examination.patient().wrong);
  const Hypothesis& hypothesis = trial.hypothesis;
  out.cause = hypothesis.by_itself.empty() ? hypothesis.cause : hypothesis.by_itself;
  out.parameters = trial.hypothesis.parameters;
  out.fix = trial.hypothesis.fix;
  out.text = trial.hypothesis.text;
  out.explained = trial.judgement.explained;
  out.ratio_before = examination.ratio_before();
  out.alternatives = trial.alternatives;
  out.after = start_of(examination);
  return out;
}

void FoundCauses::add_unknown(const CheckpointResult& result, Examination& examination,
                              const Explanation& explanation) {
  Diagnosis made = begin(result, examination.patient().wrong);
  made.ratio_before = made.ratio_after =
      explanation.nearly ? explanation.nearly->judgement.ratio : examination.ratio_before();
  made.text = unknown_clause(explanation);
  if (!explanation.nearly) made.element = examination.work_out(nullptr);
  made.after = start_of(examination);
  made.fix = examination.alone()
                 ? "Look at this operation: its inputs are right, its result is not."
                 : "Record the checkpoints between the two ('ops') to see which operation it is.";
  finish({std::move(made)}, examination, explanation);
}

// One of several mistakes, of which another is not known.
void FoundCauses::add_nearly(const CheckpointResult& result, Examination& examination,
                             const Explanation& explanation) {
  const Trial& trial = *explanation.nearly;
  Diagnosis made = begin(result, examination, trial);
  made.ratio_after = trial.judgement.ratio;
  if (const auto altered = examination.alter(trial.hypothesis.alter, trial.ops))
    made.element = examination.work_out(&*altered);
  finish({std::move(made)}, examination, explanation);
}

void FoundCauses::add_chosen(const CheckpointResult& result, Examination& examination,
                             const Explanation& explanation) {
  const Case& wrong = examination.patient();
  Altered together = examination.base();
  for (const Trial& trial : explanation.chosen)
    for (const size_t op : trial.ops) trial.hypothesis.alter(together, op);
  const auto element = examination.work_out(&together);
  for (const Trial& trial : explanation.chosen) {
    Diagnosis made = begin(result, examination, trial);
    if (explanation.chosen.size() > 1) made.explained = made.rows;
    made.ratio_after = explanation.chosen.back().judgement.explained_ratio;
    made.element = element;
    // A number that was found from all rows there are proves nothing by itself.
    const bool checked =
        trial.hypothesis.fitted == 0 || wrong.wrong.size() > examination.few().size();
    made.proved = examination.alone() && checked && !trial.contested;
    for (const size_t op : trial.ops)
      if (const int64_t layer = examination.base().program().ops[op].layer; layer >= 0)
        add_in_order(made.layers, layer);
    finish({std::move(made), trial}, examination, explanation);
  }
  if (!explanation.rounding) return;
  Diagnosis made = begin(result, wrong.wrong);
  tell_precision(*explanation.rounding, wrong.side, made);
  made.explained = made.rows;
  finish({std::move(made)}, examination, explanation);
}

void FoundCauses::finish(Found made, const Examination& examination,
                         const Explanation& explanation) {
  made.diagnosis.attempts = explanation.attempts;
  made.diagnosis.tried = explanation.tried;
  made.diagnosis.error_before = examination.error();
  found_.push_back(std::move(made));
}

}  // namespace lockstep::doctor
