#include "doctor/doctor.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/parallel.h"
#include "base/progress.h"
#include "doctor/decode_hypotheses.h"
#include "doctor/found_causes.h"
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
      result.name.ends_with(".ffn_choice") ? choice(result) : checkpoint(result);
      progress.advance(1, 0);
      parity::release_pages(side_);
    }
    std::vector<Diagnosis> out = std::move(precisions_.diagnoses);
    for (Diagnosis& each : out) each.text = sentence(each);
    for (Found& each : found_.all()) {
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
      if (!found_.all().empty() && rows_.is_astray(result.name, id->second, position)) continue;
      if (!std::ranges::binary_search(wrong.judged, position))
        wrong.judged.insert(std::ranges::lower_bound(wrong.judged, position), position);
      (rows_.has_non_finite(result.name, position) ? garbage : wrong.wrong).push_back(position);
    }
    if (!garbage.empty() && is_decoding(result, wrong)) return;
    if (wrong.wrong.empty()) {
      if (!garbage.empty()) found_.add_garbage(result, garbage);
      return;
    }
    // What was found stays; more is not looked for.
    if ((!found_.all().empty() && late()) || stopped()) return;
    Examination examination(wrong, Altered(side_.forwards.front()), deadline_);
    explain(result, examination);
    if (!garbage.empty() && !gives_garbage(result.name, examination, garbage))
      found_.add_garbage(result, garbage);
  }

  // A choice of experts is right or wrong: what leads to every one that was recorded explains it.
  void choice(const CheckpointResult& result) {
    const auto id = scope_.ids.find(result.name);
    if (id == scope_.ids.end()) return;
    const Case wrong{side_,
                     model_,
                     options_.checkpoints,
                     threads_,
                     id->second,
                     side_.replayed,
                     (result.*judgement_).defects,
                     usual_,
                     options_.interrupted,
                     products_};
    Examination examination(wrong, Altered(side_.forwards.front()), deadline_);
    const std::vector<size_t> ops = {examination.stretch().back()};
    Explanation explanation;
    for (const Hypothesis& each : choice_hypotheses(examination.findings(), ops[0])) {
      ++explanation.tried;
      const auto altered = examination.alter(each.alter, ops);
      const auto judged = altered ? examination.judge(*altered, wrong.wrong) : std::nullopt;
      if (!judged || !judged->whole() || judged->explained == 0) continue;
      if (explanation.chosen.empty()) {
        Trial trial;
        trial.hypothesis = each;
        trial.ops = ops;
        trial.judgement = *judged;
        explanation.chosen.push_back(std::move(trial));
      } else {
        explanation.chosen[0].alternatives.push_back(each.cause);
        explanation.chosen[0].contested = true;
      }
    }
    if (explanation.chosen.empty() && found_.joins_unknown(result, examination)) return;
    found_.add(result, examination, explanation);
  }

  // A wrong mask may leave rows that see nothing: what explains the other rows explains their NaN.
  bool gives_garbage(const std::string& name, Examination& examination,
                     const std::vector<int64_t>& positions) const {
    for (const Found& found : found_.all()) {
      if (!found.trial || found.diagnosis.checkpoints.back() != name) continue;
      const auto altered = examination.alter(found.trial->hypothesis.alter, found.trial->ops);
      const auto judged = altered ? examination.judge(*altered, positions) : std::nullopt;
      if (judged && !judged->breaks) return true;
    }
    return false;
  }

  void explain(const CheckpointResult& result, Examination& examination) {
    if (found_.joins_known(result, examination) || found_.joins_unknown(result, examination))
      return;
    // What nothing explains does not stand in the way of what something may.
    const int64_t named = found_.named();
    if (named >= options_.depth || std::ssize(found_.all()) >= named + kMostUnknown) return;
    found_.add(result, examination, search(examination, options_.depth - static_cast<int>(named)));
  }

  // Garbage that a wrong decoding of the weight gives.
  bool is_decoding(const CheckpointResult& result, const Case& wrong) {
    Case all = wrong;
    all.wrong = defects_of(result);
    Examination examination(all, Altered(side_.forwards.front()), deadline_);
    const auto explanation = explain_garbage(examination);
    if (explanation) found_.add(result, examination, *explanation);
    return explanation.has_value();
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
  FoundCauses found_{which_};
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
           SideDoctor(comparison, scope, of, which, judgement, *of.model, options).run())
        out.push_back(std::move(each));
    };
    side(scope.suspect, Side::kSuspect, &CheckpointResult::suspect);
    if (!one_trace) side(scope.reference, Side::kReference, &CheckpointResult::reference);
  }
  diagnose_choices(comparison, out);
  return out;
}

}  // namespace lockstep::doctor
