#include "doctor/search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "doctor/decode_hypotheses.h"
#include "doctor/solvers.h"

namespace lockstep::doctor {
namespace {

// Of the error at few rows, what a hypothesis may leave to be judged.
constexpr double kWorthJudging = 0.5;
constexpr size_t kMostJudged = 24;
constexpr size_t kJudgedLate = 3;  // where time has run out
constexpr size_t kAttemptsShown = 40;
// The worst ratio must fall by at least this: an honest engine is far below the bound.
constexpr double kMuchLess = 2.5;
// And to what honest engines have: of a thousand the worst is at 0.3.
constexpr double kHonest = 0.5;

using Targets = std::vector<std::vector<size_t>>;

struct TargetSets {
  Targets together;  // ops that one mistake in the engine makes wrong together
  Targets single;
  bool layers = false;  // the stretch has ops of several layers
};

// Together: the rotations of a layer, an op in all layers, all of a kind.
TargetSets targets_of(const Examination& examination) {
  const op::Program& program = examination.base().program();
  TargetSets out;
  const auto& stretch = examination.stretch();
  const auto add = [&](const std::vector<size_t>& ops) {
    if (ops.size() > 1 && std::ranges::find(out.together, ops) == out.together.end())
      out.together.push_back(ops);
  };
  std::map<std::string, std::vector<size_t>> by_name;
  std::map<size_t, std::vector<size_t>> by_kind;
  std::map<std::pair<int64_t, size_t>, std::vector<size_t>> by_layer;
  for (const size_t op : stretch) {
    const op::Op& here = program.ops[op];
    by_name[short_name(program.value(here.outputs[0]))].push_back(op);
    by_kind[here.what.index()].push_back(op);
    by_layer[{here.layer, here.what.index()}].push_back(op);
  }
  out.layers = std::ranges::any_of(by_name, [](const auto& all) { return all.second.size() > 1; });
  if (out.layers) {
    // Of kinds without weights one mistake is in all; matrices have their own each.
    for (const auto& [kind, ops] : by_kind)
      if (!std::holds_alternative<op::Linear>(program.ops[ops.front()].what)) add(ops);
    for (const auto& [name, ops] : by_name) add(ops);
    for (const auto& [kind, ops] : by_kind) add(ops);
  }
  for (const auto& [kind, ops] : by_layer) add(ops);
  for (auto op = stretch.rbegin(); op != stretch.rend(); ++op) out.single.push_back({*op});
  return out;
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
    if (passing().empty())
      try_decodings(DecodingScope::kTensors);
    else if (weight_explains())
      try_decodings(DecodingScope::kFormats);
    out.tried = tried_;
    out.complete = complete_ && !left_out_;
    choose(out);
    if (out.chosen.empty() && depth > 1) explain_in_parts(depth, out);
    list_attempts(out);
    if (out.chosen.empty()) out.seen = describe_error(examination_);
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
      const double error = examination_.error_of(hypothesis.alter, ops, examination_.few());
      if (!std::isfinite(error)) continue;
      ++tried_;
      trials_.push_back({std::move(hypothesis), ops, error, -1, {}});
    }
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
      const auto altered = examination_.alter(trial->hypothesis.alter, trial->ops);
      const auto few = examination_.judge(*altered, examination_.few());
      if (!few) continue;
      trial->ratio = few->ratio;
      if (few->explained == 0) continue;
      if (const auto all = examination_.judge(*altered, examination_.patient().judged);
          all && !(all->whole() && examination_.misses(*altered)))
        trial->judgement = *all;
    }
  }

  bool passes(const Trial& trial) const {
    return trial.ratio >= 0 && trial.judgement.explained > 0 && trial.judgement.whole() &&
           convinces(trial.judgement, examination_.patient().usual);
  }

  std::vector<const Trial*> passing() const {
    std::vector<const Trial*> out;
    for (const Trial& trial : trials_)
      if (passes(trial)) out.push_back(&trial);
    std::ranges::stable_sort(out, [](const Trial* a, const Trial* b) { return before(*a, *b); });
    return out;
  }

  // What holds at every position, needs fewer fitted numbers, is likelier.
  static bool before(const Trial& a, const Trial& b) {
    const auto key = [](const Trial& trial) {
      return std::tuple(trial.judgement.breaks, trial.hypothesis.fitted, trial.hypothesis.rank,
                        trial.ops.size());
    };
    return key(a) < key(b);
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
    out.chosen = {*all.front()};
    const Trial& chosen = *all.front();
    std::set<std::string> others;
    for (const Trial* trial : all) {
      const Hypothesis& other = trial->hypothesis;
      if (trial->judgement.breaks != chosen.judgement.breaks ||
          other.fitted > chosen.hypothesis.fitted || other.cause == chosen.hypothesis.cause ||
          other.cause == kUnknown)
        continue;
      others.insert(other.cause);
      out.contested = out.contested || !before(chosen, *trial);
    }
    out.alternatives.assign(others.begin(), others.end());
  }

  // One cause for some of the rows, and others for the rest; or two that act on the same rows.
  void explain_in_parts(int depth, Explanation& out) {
    std::vector<const Trial*> parts;
    for (const Trial& trial : trials_)
      if (trial.judgement.explained > 0 && !trial.judgement.breaks &&
          convinces(trial.judgement, examination_.patient().usual))
        parts.push_back(&trial);
    std::ranges::stable_sort(parts, [](const Trial* a, const Trial* b) {
      if (a->judgement.explained != b->judgement.explained)
        return a->judgement.explained > b->judgement.explained;
      return before(*a, *b);
    });
    constexpr size_t kMostParts = 3;
    for (size_t i = 0; i < std::min(parts.size(), kMostParts); ++i) {
      Case rest = examination_.patient();
      rest.wrong = parts[i]->judgement.left;
      if (!explain_rest(*parts[i], rest, depth, out)) continue;
      if (!is_patchwork(out.chosen)) return;
      out.chosen.clear();
    }
    explain_together(depth, out);
  }

  // Several mistakes of one kind in one op, each for rows of its own: that is one mistake which
  // nothing here says.
  static bool is_patchwork(const std::vector<Trial>& chosen) {
    const auto kind = [](const Trial& trial) {
      return trial.hypothesis.cause.substr(0, trial.hypothesis.cause.find('.'));
    };
    for (size_t i = 0; i < chosen.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (chosen[i].ops == chosen[j].ops && kind(chosen[i]) == kind(chosen[j])) return true;
    return false;
  }

  // No row is explained by one alone: those that leave least are put in place, one at a time.
  void explain_together(int depth, Explanation& out) {
    std::vector<const Trial*> best;
    for (const Trial& trial : trials_)
      if (trial.error < kHelps * examination_.error()) best.push_back(&trial);
    std::ranges::stable_sort(best, {}, [](const Trial* trial) { return trial->error; });
    constexpr size_t kMostTogether = 6;
    for (size_t i = 0; i < std::min(best.size(), kMostTogether) && !stop(); ++i)
      if (explain_rest(*best[i], examination_.patient(), depth, out)) {
        if (!is_void(out.chosen)) return;
        out.chosen.clear();
      }
  }

  // The others alone give the same: the first of them changes what another undoes.
  bool is_void(const std::vector<Trial>& chosen) {
    const auto error_from = [&](size_t first) {
      Altered altered = examination_.base();
      size_t least = altered.program().ops.size();
      for (size_t i = first; i < chosen.size(); ++i)
        for (const size_t op : chosen[i].ops) {
          if (!chosen[i].hypothesis.alter(altered, op)) return -1.0;
          least = std::min(least, op);
        }
      return examination_.error_of(altered, least, examination_.few());
    };
    const double without = error_from(1);
    return without >= 0 && without <= kClearly * error_from(0);
  }

  bool explain_rest(const Trial& first, const Case& rest, int depth, Explanation& out) {
    auto altered = examination_.alter(first.hypothesis.alter, first.ops);
    if (!altered || first.hypothesis.cause == kUnknown) return false;
    Examination next(rest, std::move(*altered), examination_.deadline());
    Explanation more = search(next, depth - 1);
    out.tried += more.tried;
    if (more.chosen.empty()) return false;
    out.chosen = {first};
    out.chosen.insert(out.chosen.end(), more.chosen.begin(), more.chosen.end());
    out.alternatives.clear();
    return true;
  }

  void list_attempts(Explanation& out) const {
    std::vector<const Trial*> all;
    for (const Trial& trial : trials_) all.push_back(&trial);
    std::ranges::stable_sort(all, {}, [](const Trial* trial) { return trial->error; });
    if (all.size() > kAttemptsShown) all.resize(kAttemptsShown);
    for (const Trial* trial : all)
      out.attempts.push_back(
          {trial->hypothesis.cause, trial->hypothesis.text, trial->error, trial->ratio});
  }

  static constexpr double kClearly = 1.01;

  // Of two mistakes, the first that is undone must help so much.
  static constexpr double kHelps = 0.9;

  Examination& examination_;
  std::vector<Trial> trials_;
  int64_t tried_ = 0;
  bool complete_ = true;
  bool left_out_ = false;  // decodings that would have taken the time of all else
};

}  // namespace

bool convinces(const Judgement& judgement, double usual) {
  return judgement.explained > 0 &&
         judgement.explained_before >= kMuchLess * judgement.explained_ratio &&
         judgement.explained_ratio <= std::max(kHonest, 2 * usual);
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
    Trial trial{found.hypothesis, ops, 0, 0, {}};
    trial.error = examination.error_of(*altered, *std::ranges::min_element(ops), examination.few());
    if (!(trial.error < kWorthJudging * examination.error())) continue;
    const auto all = examination.judge(*altered, examination.patient().judged);
    if (!all || !all->whole() || !convinces(*all, examination.patient().usual)) continue;
    trial.judgement = *all;
    trial.ratio = all->ratio;
    return trial;
  }
  return std::nullopt;
}

}  // namespace lockstep::doctor
