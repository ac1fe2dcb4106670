#include "doctor/doctor.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/parallel.h"
#include "base/progress.h"
#include "doctor/decode_hypotheses.h"
#include "doctor/given.h"
#include "doctor/pooled_diagnosis.h"
#include "doctor/precision_diagnosis.h"
#include "doctor/recorded_rows.h"
#include "doctor/search.h"
#include "doctor/words.h"

namespace lockstep::doctor {
namespace {

using parity::CheckpointResult;
using parity::Comparison;
using parity::Side;

// Checkpoints that nothing explains, on one side.
constexpr int64_t kMostUnknown = 3;

// What was found on one side, and how.
struct Found {
  Diagnosis diagnosis;
  std::optional<Trial> trial;  // none: nothing explains it
};

// Another checkpoint that is wrong for the same reason.
void join(Diagnosis& diagnosis, const CheckpointResult& result, const Case& wrong, int64_t rows,
          const Judgement& judgement) {
  add_checkpoint(diagnosis, result, wrong.wrong);
  diagnosis.rows += rows;
  diagnosis.explained += judgement.explained;
  diagnosis.ratio_before = std::max(diagnosis.ratio_before, judgement.explained_before);
  diagnosis.ratio_after = std::max(diagnosis.ratio_after, judgement.explained_ratio);
}

class SideDoctor {
 public:
  SideDoctor(const Comparison& comparison, const parity::Scope& scope,
             const parity::SideScope& side, Side which,
             parity::SideJudgement CheckpointResult::*judgement, const model::Model& model,
             const Options& options)
      : comparison_(comparison),
        scope_(scope),
        side_(side),
        which_(which),
        judgement_(judgement),
        model_(model),
        options_(options),
        threads_(options.threads > 0 ? options.threads : available_cores()),
        products_(options.device != nullptr ? *options.device : exec::f64::cpu_products()),
        deadline_(Examination::after(options.seconds)) {}

  std::vector<Diagnosis> run() {
    int64_t wrong = 0;
    for (const CheckpointResult& result : comparison_.checkpoints) {
      const parity::SideJudgement& own = result.*judgement_;
      wrong += own.defects.empty() ? 0 : 1;
      if (own.defects.empty() && own.worst) usual_ = std::max(usual_, own.worst->ratio());
    }
    if (wrong == 0)
      return diagnose_hidden({comparison_, scope_, side_, which_, judgement_, model_,
                              options_.checkpoints, threads_, options_.seconds, options_.search,
                              options_.interrupted, products_});
    find_precisions();
    Progress progress("looking for causes", wrong, "checkpoints");
    for (const CheckpointResult& result : comparison_.checkpoints) {
      if ((result.*judgement_).defects.empty()) continue;
      if (stopped()) break;
      // A choice of experts is right or wrong: its numbers do not tell why.
      if (!result.name.ends_with(".ffn_choice")) checkpoint(result);
      progress.advance(1, 0);
      side_.trace->release_pages();
      model_.file().release_pages();
    }
    std::vector<Diagnosis> out = std::move(precisions_.diagnoses);
    for (Diagnosis& each : out) each.text = sentence(each);
    for (Found& each : found_) {
      each.diagnosis.text = sentence(each.diagnosis);
      out.push_back(std::move(each.diagnosis));
    }
    std::ranges::stable_sort(out, {}, [&](const Diagnosis& each) {
      return std::ranges::find(comparison_.checkpoints, each.checkpoint, &CheckpointResult::name) -
             comparison_.checkpoints.begin();
    });
    return out;
  }

 private:
  bool stopped() const { return options_.interrupted != nullptr && *options_.interrupted; }
  bool late() const { return stopped() || Examination::Clock::now() > deadline_; }

  // Rounding that is not declared is wrong at most checkpoints: it goes first, and what it explains
  // is not searched for other causes.
  void find_precisions() {
    const op::Program& program = side_.forwards.front().program;
    PrecisionPatient patient{side_, which_, options_.checkpoints, {}, threads_, {}, {}, products_};
    std::vector<WrongCheckpoint> wrong;
    for (const CheckpointResult& result : comparison_.checkpoints) {
      const auto id = scope_.ids.find(result.name);
      if (id == scope_.ids.end() || (result.*judgement_).judged == 0) continue;
      if (result.name.ends_with(".ffn_choice")) continue;
      for (const op::Op& op : program.ops)
        if (std::ranges::find(op.outputs, id->second) != op.outputs.end())
          ++patient.judged_ops[op.what.index()];
      WrongCheckpoint each{&result, id->second, {}};
      for (const int64_t position : (result.*judgement_).defects)
        if (!rows_.has_non_finite(result.name, position) &&
            rows_.tells_type(result.name, id->second, position))
          each.positions.push_back(position);
      if (!each.positions.empty()) wrong.push_back(std::move(each));
    }
    const auto kind_of = [&](op::ValueId id) {
      return std::ranges::find_if(program.ops,
                                  [&](const op::Op& op) {
                                    return std::ranges::find(op.outputs, id) != op.outputs.end();
                                  })
          ->what.index();
    };
    std::map<std::string, bool> known;  // the same checkpoint of other layers has the same reason
    // Sums are coarse in most ops of a kind, or in none; and nothing else explains the rows.
    patient.may_be_sums = [&](const WrongRows& rows) {
      const auto [at, fresh] = known.try_emplace(short_name(program.value(rows.id)), false);
      if (!fresh) return at->second;
      const size_t kind = kind_of(rows.id);
      const auto alike = std::ranges::count_if(
          wrong, [&](const WrongCheckpoint& each) { return kind_of(each.id) == kind; });
      if (alike < 2 || 2 * alike <= patient.judged_ops[kind]) return false;
      Case own{side_,          model_, options_.checkpoints, threads_, rows.id, rows.positions,
               rows.positions, usual_, options_.interrupted, products_};
      Examination examination(own, Altered(side_.forwards.front()), deadline_);
      return at->second = search(examination, 1).chosen.empty();
    };
    patient.late = [&] { return late(); };
    precisions_ = diagnose_precision(patient, wrong);
    side_.precision = precisions_.precision;
  }

  // Wrong rows that no precision explains.
  std::vector<int64_t> defects_of(const CheckpointResult& result) const {
    const auto left = precisions_.left.find(result.name);
    const auto& all = (result.*judgement_).defects;
    if (left == precisions_.left.end()) return all;
    std::vector<int64_t> out;
    for (const int64_t position : all)
      if (std::ranges::binary_search(left->second, position) ||
          rows_.has_non_finite(result.name, position))
        out.push_back(position);
    return out;
  }

  void checkpoint(const CheckpointResult& result) {
    const auto id = scope_.ids.find(result.name);
    if (id == scope_.ids.end()) return;
    const std::vector<int64_t> defects = defects_of(result);
    Case wrong{side_, model_, options_.checkpoints, threads_, id->second, side_.replayed,
               {},    usual_, options_.interrupted, products_};
    std::vector<int64_t> garbage;
    for (const int64_t position : defects) {
      // Another mistake led there.
      if (!found_.empty() && rows_.is_astray(result.name, id->second, position)) continue;
      if (!std::ranges::binary_search(wrong.judged, position))
        wrong.judged.insert(std::ranges::lower_bound(wrong.judged, position), position);
      (rows_.has_non_finite(result.name, position) ? garbage : wrong.wrong).push_back(position);
    }
    if (!garbage.empty() && is_decoding(result, wrong)) return;
    if (wrong.wrong.empty()) {
      if (!garbage.empty()) add_garbage(result, garbage);
      return;
    }
    // What was found stays; more is not looked for.
    if ((!found_.empty() && late()) || stopped()) return;
    Examination examination(wrong, Altered(side_.forwards.front()), deadline_);
    explain(result, wrong, examination);
    if (!garbage.empty() && !gives_garbage(result.name, examination, garbage))
      add_garbage(result, garbage);
  }

  // A wrong mask may leave rows that see nothing: what explains the other rows explains their NaN.
  bool gives_garbage(const std::string& name, Examination& examination,
                     const std::vector<int64_t>& positions) const {
    for (const Found& found : found_) {
      if (!found.trial || found.diagnosis.checkpoints.back() != name) continue;
      const auto altered = examination.alter(found.trial->hypothesis.alter, found.trial->ops);
      const auto judged = altered ? examination.judge(*altered, positions) : std::nullopt;
      if (judged && !judged->breaks) return true;
    }
    return false;
  }

  void explain(const CheckpointResult& result, const Case& wrong, Examination& examination) {
    for (Found& before : found_)
      if (before.trial)
        if (const auto again = try_again(examination, *before.trial)) {
          join(before.diagnosis, result, wrong, std::ssize(wrong.wrong), again->judgement);
          before.trial->ops = again->ops;
          return;
        }
    if (joins_unknown(result, wrong)) return;
    // What nothing explains does not stand in the way of what something may.
    const auto named = std::ranges::count_if(
        found_, [](const Found& each) { return each.diagnosis.cause != kUnknown; });
    if (named >= options_.depth || std::ssize(found_) >= named + kMostUnknown) return;
    const Explanation explanation = search(examination, options_.depth - static_cast<int>(named));
    add(result, wrong, examination, explanation);
  }

  // Garbage that a wrong decoding of the weight gives.
  bool is_decoding(const CheckpointResult& result, const Case& wrong) {
    Case all = wrong;
    all.wrong = defects_of(result);
    Examination examination(all, Altered(side_.forwards.front()), deadline_);
    const auto explanation = explain_garbage(examination);
    if (explanation) add(result, all, examination, *explanation);
    return explanation.has_value();
  }

  void add_garbage(const CheckpointResult& result, const std::vector<int64_t>& positions) {
    const auto before = std::ranges::find_if(
        found_, [](const Found& found) { return found.diagnosis.cause == "garbage"; });
    if (before != found_.end()) {
      add_checkpoint(before->diagnosis, result, positions);
      before->diagnosis.rows += std::ssize(positions);
      before->diagnosis.explained += std::ssize(positions);
      return;
    }
    Found made;
    made.diagnosis = begin(result, positions);
    made.diagnosis.cause = "garbage";
    made.diagnosis.proved = true;
    made.diagnosis.explained = made.diagnosis.rows;
    made.diagnosis.parameters = {{"class", std::string("non-finite")}};
    made.diagnosis.ratio_before = INFINITY;
    made.diagnosis.text = "has NaN or infinity, which its inputs do not give";
    made.diagnosis.fix =
        "Look at what wrote this value, at divisions by zero and at numbers that are too large for "
        "their type; 'lockstep scan' tells more of numbers that are none.";
    found_.push_back(std::move(made));
  }

  Diagnosis begin(const CheckpointResult& result, const std::vector<int64_t>& positions) const {
    Diagnosis out;
    out.side = which_;
    add_checkpoint(out, result, positions);
    out.rows = std::ssize(positions);
    return out;
  }

  // The same checkpoint of other layers is unknown for the same reason, as far as anybody can tell.
  bool joins_unknown(const CheckpointResult& result, const Case& wrong) {
    const auto tail = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
    for (Found& before : found_)
      if (!before.trial && before.diagnosis.cause == kUnknown &&
          tail(before.diagnosis.checkpoint) == tail(result.name)) {
        join(before.diagnosis, result, wrong, std::ssize(wrong.wrong), {});
        return true;
      }
    return false;
  }

  void add(const CheckpointResult& result, const Case& wrong, Examination& examination,
           const Explanation& explanation) {
    // Of hypotheses that name a tensor: the same in another layer.
    if (explanation.chosen.size() == 1)
      for (Found& before : found_)
        if (before.trial &&
            same_mistake(before.trial->hypothesis, explanation.chosen[0].hypothesis)) {
          join(before.diagnosis, result, wrong, std::ssize(wrong.wrong),
               explanation.chosen[0].judgement);
          return;
        }
    if (explanation.chosen.empty()) {
      if (explanation.nearly) add_nearly(result, wrong, examination, explanation);
      Found made;
      made.diagnosis = begin(result, wrong.wrong);
      made.diagnosis.ratio_before = made.diagnosis.ratio_after =
          explanation.nearly ? explanation.nearly->judgement.ratio : examination.ratio_before();
      made.diagnosis.text = unknown_clause(explanation);
      if (!explanation.nearly) made.diagnosis.element = examination.work_out(nullptr);
      if (!examination.alone()) made.diagnosis.after = start_of(examination);
      made.diagnosis.fix =
          examination.alone()
              ? "Look at this operation: its inputs are right, its result is not."
              : "Record the checkpoints between the two ('ops') to see which operation it is.";
      finish(made, examination, explanation);
      return;
    }
    Altered together = examination.base();
    for (const Trial& trial : explanation.chosen)
      for (const size_t op : trial.ops) trial.hypothesis.alter(together, op);
    const auto element = examination.work_out(&together);
    for (const Trial& trial : explanation.chosen) {
      Found made;
      made.diagnosis = begin(result, wrong.wrong);
      Diagnosis& diagnosis = made.diagnosis;
      diagnosis.cause = trial.hypothesis.cause;
      diagnosis.parameters = trial.hypothesis.parameters;
      diagnosis.fix = trial.hypothesis.fix;
      diagnosis.text = trial.hypothesis.text;
      diagnosis.explained =
          explanation.chosen.size() > 1 ? diagnosis.rows : trial.judgement.explained;
      diagnosis.ratio_before = examination.ratio_before();
      diagnosis.ratio_after = explanation.chosen.back().judgement.explained_ratio;
      diagnosis.alternatives = trial.alternatives;
      diagnosis.element = element;
      // A number that was found from all rows there are proves nothing by itself.
      const bool checked =
          trial.hypothesis.fitted == 0 || wrong.wrong.size() > examination.few().size();
      diagnosis.proved = examination.alone() && checked && !trial.contested;
      if (!examination.alone()) diagnosis.after = start_of(examination);
      for (const size_t op : trial.ops)
        if (const int64_t layer = examination.base().program().ops[op].layer; layer >= 0)
          add_in_order(diagnosis.layers, layer);
      made.trial = trial;
      finish(made, examination, explanation);
    }
    if (explanation.rounding) {
      Found made;
      made.diagnosis = begin(result, wrong.wrong);
      tell_precision(*explanation.rounding, side_, made.diagnosis);
      made.diagnosis.explained = made.diagnosis.rows;
      finish(made, examination, explanation);
    }
  }

  // One of several mistakes, of which another is not known.
  void add_nearly(const CheckpointResult& result, const Case& wrong, Examination& examination,
                  const Explanation& explanation) {
    const Trial& trial = *explanation.nearly;
    Found made;
    made.diagnosis = begin(result, wrong.wrong);
    made.diagnosis.cause = trial.hypothesis.cause;
    made.diagnosis.parameters = trial.hypothesis.parameters;
    made.diagnosis.fix = trial.hypothesis.fix;
    made.diagnosis.text = trial.hypothesis.text;
    made.diagnosis.explained = trial.judgement.explained;
    made.diagnosis.ratio_before = examination.ratio_before();
    made.diagnosis.ratio_after = trial.judgement.ratio;
    made.diagnosis.alternatives = trial.alternatives;
    if (const auto altered = examination.alter(trial.hypothesis.alter, trial.ops))
      made.diagnosis.element = examination.work_out(&*altered);
    if (!examination.alone()) made.diagnosis.after = start_of(examination);
    finish(made, examination, explanation);
  }

  std::string start_of(Examination& examination) const {
    parity::Replay replay(side_.forwards.front(), side_.precision, *side_.trace, side_.tokens,
                          options_.checkpoints, threads_, products_);
    const Case& wrong = examination.patient();
    const auto after = replay.starts_after(wrong.value, wrong.wrong.front());
    return after && !after->empty() ? *after : std::string("the tokens");
  }

  void finish(Found& made, const Examination& examination, const Explanation& explanation) {
    made.diagnosis.attempts = explanation.attempts;
    made.diagnosis.tried = explanation.tried;
    made.diagnosis.error_before = examination.error();
    found_.push_back(std::move(made));
  }

  const Comparison& comparison_;
  const parity::Scope& scope_;
  parity::SideScope side_;  // judged by the precision that was found
  const RecordedRows rows_{side_};
  const Side which_;
  parity::SideJudgement CheckpointResult::*judgement_;
  const model::Model& model_;
  const Options& options_;
  const int threads_;
  exec::f64::Products& products_;
  const Examination::Clock::time_point deadline_;
  double usual_ = 0;  // worst error over bound, of the checkpoints that are right
  PrecisionOutcome precisions_;
  std::vector<Found> found_;
};

}  // namespace

std::vector<Diagnosis> diagnose(const Comparison& comparison, const parity::Scope& scope,
                                const model::Model* model, const Options& options) {
  std::vector<Diagnosis> out;
  diagnose_given(comparison, scope, out);
  if (model != nullptr) {
    const bool one_trace = scope.reference.trace == scope.suspect.trace;
    const auto side = [&](const parity::SideScope& of, Side which,
                          parity::SideJudgement CheckpointResult::*judgement) {
      if (!of.judged()) return;
      for (Diagnosis& each :
           SideDoctor(comparison, scope, of, which, judgement, *model, options).run())
        out.push_back(std::move(each));
    };
    side(scope.suspect, Side::kSuspect, &CheckpointResult::suspect);
    if (!one_trace) side(scope.reference, Side::kReference, &CheckpointResult::reference);
  }
  diagnose_choices(comparison, out);
  return out;
}

}  // namespace lockstep::doctor
