#include "doctor/search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "doctor/decode_hypotheses.h"
#include "doctor/rounding_hypotheses.h"
#include "doctor/search_several.h"
#include "doctor/solvers.h"
#include "doctor/targets.h"

namespace lockstep::doctor {
namespace {

// Of the error at few rows, what a hypothesis may leave to be judged.
constexpr double kWorthJudging = 0.5;
constexpr size_t kMostJudged = 24;
constexpr size_t kJudgedLate = 3;  // where time has run out
constexpr size_t kMostAttempts = 1000;
// The worst ratio must fall by at least this: an honest engine is far below the bound.
constexpr double kMuchLess = 2.5;
// Whether a hypothesis explains all wrong rows.
bool holds(const Trial& trial, double usual) {
  return trial.judgement.whole() && convinces(trial.judgement, usual);
}

class Search {
 public:
  explicit Search(Examination& examination) : examination_(examination) {}

  Explanation run(int depth) {
    Explanation out;
    if (!examination_.usable()) return out;
    const TargetSets targets = targets_of(examination_);
    const bool alone = examination_.alone();
    // The likeliest first; what holds everywhere ends the search. In a stretch a number that is
    // wrong in all its ops is likelier than a strange mistake in one.
    const std::function<void()> steps[] = {
        [&] { try_catalogue(targets.together, true); },
        [&] {
          if (targets.layers) try_solvers(targets.together);
        },
        [&] { try_catalogue(targets.single, true); },
        [&] {
          if (passing().empty()) try_decodings(DecodingScope::kFormats);
        },
        [&] {
          if (!alone && !targets.layers) try_solvers(targets.together);
          if (!alone) try_solvers(targets.single);
        },
        [&] {
          try_catalogue(targets.together, false);
          try_catalogue(targets.single, false);
        },
        [&] {
          if (!alone) return;
          attempt(match(examination_), {examination_.stretch().back()});
          try_solvers(targets.single);
        },
    };
    for (const auto& step : steps) {
      if (settled()) break;
      step();
      judge_best();
    }
    if (passing().empty() && examination_.stretch().size() > 1) {
      try_rounding(targets.together);
      try_rounding(targets.single);
      judge_best();
    }
    if (passing().empty())
      try_decodings(DecodingScope::kTensors);
    else if (weight_explains())
      try_decodings(DecodingScope::kFormats);
    out.tried = tried_;
    out.complete = complete_ && !left_out_;
    choose(out);
    if (out.chosen.empty() && depth > 1) explain_by_several(examination_, trials_, depth, out);
    list_attempts(out);
    if (!out.chosen.empty()) return out;
    out.nearly = explains_nearly_all(examination_, trials_);
    out.seen = describe_error(examination_);
    return out;
  }

 private:
  bool stop() {
    if (examination_.late()) complete_ = false;
    return !complete_;
  }

  void try_catalogue(const Targets& targets, bool likely) {
    for (const auto& ops : targets) {
      if (stop()) return;
      std::vector<Hypothesis> all = catalogue(examination_.findings(), ops.front());
      std::erase_if(all, [&](const Hypothesis& each) { return (each.rank == 0) != likely; });
      attempt(std::move(all), ops);
    }
  }

  void try_solvers(const Targets& targets) {
    for (const auto& ops : targets) {
      if (stop()) return;
      attempt(solve(examination_, ops), ops);
    }
  }

  void try_rounding(const Targets& targets) {
    for (const auto& ops : targets) {
      if (stop()) return;
      attempt(rounding_hypotheses(examination_, ops), ops);
    }
  }

  bool settled() const {
    const auto found = passing();
    return !found.empty() && !found.front()->judgement.breaks;
  }

  // Columns that are left out may be blocks whose scale is read as next to nothing.
  bool weight_explains() const {
    return examination_.alone() && passing().front()->hypothesis.cause.starts_with("weight.");
  }

  // There are many: they leave time for the rest.
  void try_decodings(DecodingScope scope) {
    const auto now = Examination::Clock::now();
    const auto until = now + (examination_.deadline() - now) / 3;
    for (DecodingTarget& target : decode_hypotheses(examination_, scope))
      for (Hypothesis& hypothesis : target.hypotheses) {
        if (examination_.alone() || Examination::Clock::now() < until)
          attempt({std::move(hypothesis)}, target.ops);
        else
          left_out_ = true;
      }
    judge_best();
  }

  void attempt(std::vector<Hypothesis> hypotheses, const std::vector<size_t>& ops) {
    for (Hypothesis& hypothesis : hypotheses) {
      if (stop()) return;
      if (ops.size() > 1 && hypothesis.of_one_op) continue;
      const auto altered = examination_.alter(hypothesis.alter, ops);
      if (!altered) continue;
      const auto errors =
          examination_.errors_of(*altered, *std::ranges::min_element(ops), examination_.few());
      const double error = root_mean_square(errors);
      if (!std::isfinite(error)) continue;
      ++tried_;
      trials_.push_back({std::move(hypothesis), ops, error, least_share(errors), -1, {}});
    }
  }

  // Of the error of a row that is left, at the row where that is least.
  double least_share(std::span<const double> errors) const {
    double out = 1;
    if (errors.size() != examination_.errors().size()) return out;
    for (size_t i = 0; i < errors.size(); ++i)
      if (const double before = examination_.errors()[i]; before > 0)
        out = std::min(out, errors[i] / before);
    return out;
  }

  // By the bound: at few rows, and then at all.
  void judge_best() {
    std::vector<Trial*> best;
    for (Trial& trial : trials_)
      if (trial.error < kWorthJudging * examination_.error() && trial.ratio < 0)
        best.push_back(&trial);
    std::ranges::stable_sort(best, {}, &Trial::error);
    const size_t most = stop() ? kJudgedLate : kMostJudged;
    if (best.size() > most) best.resize(most);
    for (Trial* trial : best) {
      judge_trial(examination_, *trial);
    }
  }

  bool passes(const Trial& trial) const {
    return trial.ratio >= 0 && trial.judgement.explained > 0 &&
           holds(trial, examination_.patient().usual);
  }

  std::vector<const Trial*> passing() const {
    std::vector<const Trial*> out;
    for (const Trial& trial : trials_)
      if (passes(trial)) out.push_back(&trial);
    std::ranges::stable_sort(out, [](const Trial* a, const Trial* b) { return before(*a, *b); });
    return out;
  }

  // Of those that are as likely, the one that leaves clearly less at rows that lie apart.
  void prefer_closest(std::vector<const Trial*>& all) {
    const auto end =
        std::ranges::find_if(all, [&](const Trial* trial) { return before(*all.front(), *trial); });
    if (end - all.begin() < 2) return;
    std::vector<double> left;
    for (auto at = all.begin(); at != end; ++at)
      left.push_back(
          examination_.error_of((*at)->hypothesis.alter, (*at)->ops, examination_.spread()));
    const double least = *std::ranges::min_element(left);
    const auto best =
        std::ranges::find_if(left, [&](double error) { return error <= kClearly * least; });
    std::rotate(all.begin(), all.begin() + (best - left.begin()),
                all.begin() + (best - left.begin()) + 1);
  }

  void choose(Explanation& out) {
    auto all = passing();
    if (all.empty()) return;
    prefer_closest(all);
    Trial chosen = *all.front();
    std::set<std::string> others;
    for (const Trial* trial : all) {
      const Hypothesis& other = trial->hypothesis;
      if (trial->judgement.breaks != chosen.judgement.breaks ||
          other.fitted > chosen.hypothesis.fitted || other.cause == chosen.hypothesis.cause ||
          other.cause == kUnknown)
        continue;
      others.insert(other.cause);
      chosen.contested = chosen.contested || !before(chosen, *trial);
    }
    chosen.alternatives.assign(others.begin(), others.end());
    out.chosen = {std::move(chosen)};
  }

  void list_attempts(Explanation& out) const {
    std::vector<const Trial*> all;
    for (const Trial& trial : trials_) all.push_back(&trial);
    std::ranges::stable_sort(all, {}, [](const Trial* trial) { return trial->error; });
    if (all.size() > kMostAttempts) all.resize(kMostAttempts);
    for (const Trial* trial : all)
      out.attempts.push_back(
          {trial->hypothesis.cause, trial->hypothesis.text, trial->error, trial->ratio});
  }

  Examination& examination_;
  std::vector<Trial> trials_;
  int64_t tried_ = 0;
  bool complete_ = true;
  bool left_out_ = false;  // decodings that would have taken the time of all else
};

}  // namespace

void judge_trial(Examination& examination, Trial& trial) {
  const auto altered = examination.alter(trial.hypothesis.alter, trial.ops);
  const auto few = altered ? examination.judge(*altered, examination.few()) : std::nullopt;
  if (!few) return;
  trial.ratio = few->ratio;
  if (few->explained == 0) return;
  if (const auto all = examination.judge(*altered, examination.patient().judged);
      all && !(all->whole() && examination.misses(*altered)))
    trial.judgement = *all;
}

bool before(const Trial& a, const Trial& b) {
  const auto key = [](const Trial& trial) {
    return std::tuple(trial.judgement.breaks, trial.hypothesis.fitted, trial.hypothesis.rank,
                      trial.ops.size());
  };
  return key(a) < key(b);
}

bool convinces(const Judgement& judgement, double usual) {
  return judgement.explained > 0 &&
         judgement.explained_before >= kMuchLess * judgement.explained_ratio &&
         judgement.explained_ratio <= std::max(kHonestRatio, 2 * usual);
}

Explanation search(Examination& examination, int depth) {
  return Search(examination).run(depth);
}

std::optional<Trial> try_again(Examination& examination, const Trial& found) {
  if (!examination.usable() || found.hypothesis.of_one_op) return std::nullopt;
  const op::Program& program = examination.base().program();
  const size_t kind = program.ops[found.ops.front()].what.index();
  TargetSets targets = targets_of(examination);
  Targets& all_targets = targets.together;
  all_targets.insert(all_targets.end(), targets.single.begin(), targets.single.end());
  for (const std::vector<size_t>& ops : all_targets) {
    if (!found.hypothesis.of_any_kind && program.ops[ops.front()].what.index() != kind) continue;
    const auto altered = examination.alter(found.hypothesis.alter, ops);
    if (!altered) continue;
    Trial trial{found.hypothesis, ops, 0, 1, 0, {}};
    trial.error = examination.error_of(*altered, *std::ranges::min_element(ops), examination.few());
    if (!(trial.error < kWorthJudging * examination.error())) continue;
    const auto all = examination.judge(*altered, examination.patient().judged);
    if (!all) continue;
    trial.judgement = *all;
    if (!holds(trial, examination.patient().usual)) continue;
    trial.ratio = all->ratio;
    return trial;
  }
  return std::nullopt;
}

}  // namespace lockstep::doctor
