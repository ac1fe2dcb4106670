#include "doctor/search_several.h"

#include <algorithm>
#include <limits>
#include <set>

namespace lockstep::doctor {
namespace {

// Of two mistakes, the first that is undone must help so much.
constexpr double kHelps = 0.9;
constexpr size_t kMostTogether = 6;
constexpr size_t kMostParts = 3;
// Of a row's error, what a hypothesis may leave that explains this row alone.
constexpr double kExplainsARow = 0.02;
constexpr size_t kMostOfRows = 8;
// Of the error, what may be rounding that hides behind another mistake.
constexpr double kMayBeRounding = 0.05;
// Pairs of which neither helps by itself: so many hypotheses, and what the pair may leave.
constexpr size_t kMostInPairs = 32;
constexpr double kPairLeaves = 0.02;

// What of the error may be left, where nearly all is explained; and what any other cause leaves at
// least, beside that.
constexpr double kNearlyAll = 0.01;
constexpr double kAnyOther = 10;

// Other causes that leave the same are listed with it.
Trial with_equals(Trial trial, const std::vector<Trial>& trials) {
  std::set<std::string> others;
  for (const Trial& other : trials)
    if (other.error <= kClearly * trial.error && trial.error <= kClearly * other.error &&
        other.hypothesis.fitted <= trial.hypothesis.fitted &&
        other.hypothesis.cause != trial.hypothesis.cause && other.hypothesis.cause != kUnknown)
      others.insert(other.hypothesis.cause);
  trial.alternatives.assign(others.begin(), others.end());
  trial.contested = !others.empty();
  return trial;
}

class SeveralCauses {
 public:
  SeveralCauses(Examination& examination, std::vector<Trial>& trials, Explanation& out)
      : examination_(examination), trials_(trials), out_(out) {}

  // Two that explain it are likelier than three.
  void run(int most) {
    for (depth_ = 2; depth_ <= most; ++depth_)
      if (by_rows() || by_best() || (depth_ == 2 && by_pairs())) return;
  }

 private:
  bool stop() const { return examination_.late(); }

  void forget() {
    out_.chosen.clear();
    out_.rounding.reset();
  }

  // One cause for some of the rows, and others for the rest.
  bool by_rows() {
    std::vector<Trial*> of_rows;
    for (Trial& trial : trials_)
      if (trial.ratio < 0 && trial.least < kExplainsARow) of_rows.push_back(&trial);
    std::ranges::stable_sort(of_rows, {}, &Trial::error);
    if (of_rows.size() > kMostOfRows) of_rows.resize(kMostOfRows);
    for (Trial* trial : of_rows)
      if (!stop()) judge_trial(examination_, *trial);
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
    for (size_t i = 0; i < std::min(parts.size(), kMostParts) && !stop(); ++i)
      if (explain_rest({*parts[i]}, parts[i]->judgement.left) && !is_patchwork()) return true;
    forget();
    return false;
  }

  // Several mistakes of one kind in one op, each for rows of its own: that is one mistake which
  // nothing here says.
  bool is_patchwork() const {
    const auto kind = [](const Trial& trial) {
      return trial.hypothesis.cause.substr(0, trial.hypothesis.cause.find('.'));
    };
    const auto& chosen = out_.chosen;
    for (size_t i = 0; i < chosen.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (chosen[i].ops == chosen[j].ops && kind(chosen[i]) == kind(chosen[j])) return true;
    return false;
  }

  // No row is explained by one alone: those that leave least are put in place, one at a time.
  bool by_best() {
    std::vector<const Trial*> best;
    for (const Trial& trial : trials_)
      if (trial.error < kHelps * examination_.error()) best.push_back(&trial);
    std::ranges::stable_sort(best, {}, [](const Trial* trial) { return trial->error; });
    prefer_likelier(best);
    for (size_t i = 0; i < std::min(best.size(), kMostTogether) && !stop(); ++i)
      if (explain_rest({*best[i]}, left_by(*best[i])) && !is_void()) return true;
    forget();
    return false;
  }

  // Of those that leave as little as the best.
  static void prefer_likelier(std::vector<const Trial*>& best) {
    if (best.empty()) return;
    const double least = kClearly * best.front()->error;
    const auto end =
        std::ranges::find_if(best, [&](const Trial* trial) { return trial->error > least; });
    std::stable_sort(best.begin(), end,
                     [](const Trial* a, const Trial* b) { return before(*a, *b); });
  }

  // Neither alone leaves less: a wrong matrix that is multiplied with a wrong row.
  bool by_pairs() {
    if (!examination_.alone()) return false;
    std::vector<const Trial*> likely;
    for (const Trial& trial : trials_)
      if (trial.hypothesis.fitted == 0 && trial.hypothesis.cause != kUnknown)
        likely.push_back(&trial);
    std::ranges::stable_sort(likely, {}, [](const Trial* trial) { return trial->hypothesis.rank; });
    if (likely.size() > kMostInPairs) likely.resize(kMostInPairs);
    const Trial* best[2] = {nullptr, nullptr};
    double least = kPairLeaves * examination_.error();
    for (const Trial* first : likely)
      for (const Trial* second : likely) {
        if (stop()) return false;
        if (first->hypothesis.cause == second->hypothesis.cause) continue;
        Altered altered = examination_.base();
        if (!apply(*first, altered) || !apply(*second, altered)) continue;
        const double error =
            examination_.error_of(altered, first_op({*first, *second}), examination_.few());
        if (!(error < least)) continue;
        least = error;
        best[0] = first;
        best[1] = second;
      }
    if (best[0] == nullptr) return false;
    if (explain_rest({*best[0]}, examination_.patient().wrong) && !is_void()) return true;
    forget();
    return false;
  }

  static bool apply(const Trial& trial, Altered& altered) {
    return std::ranges::all_of(trial.ops,
                               [&](size_t op) { return trial.hypothesis.alter(altered, op); });
  }

  static size_t first_op(const std::vector<Trial>& trials) {
    size_t out = trials.front().ops.front();
    for (const Trial& trial : trials) out = std::min(out, *std::ranges::min_element(trial.ops));
    return out;
  }

  // The others alone give the same: the first of them changes what another undoes.
  bool is_void() {
    const auto error_from = [&](size_t first) {
      Altered altered = examination_.base();
      for (size_t i = first; i < out_.chosen.size(); ++i)
        if (!apply(out_.chosen[i], altered)) return -1.0;
      return examination_.error_of(altered, first_op(out_.chosen), examination_.few());
    };
    const double without = error_from(1);
    return out_.chosen.size() > 1 && without >= 0 && without <= kClearly * error_from(0);
  }

  std::vector<int64_t> left_by(const Trial& trial) {
    const auto altered = examination_.alter(trial.hypothesis.alter, trial.ops);
    const auto judged =
        altered ? examination_.judge(*altered, examination_.patient().wrong) : std::nullopt;
    return judged ? judged->left : examination_.patient().wrong;
  }

  // With `first` in place, all that is still wrong.
  bool explain_rest(const Trial& first, const std::vector<int64_t>& left) {
    auto altered = examination_.alter(first.hypothesis.alter, first.ops);
    if (!altered || left.empty() || first.hypothesis.cause == kUnknown) return false;
    // Where a number on an edge falls to the other side, another number could be fitted to that.
    if (first.hypothesis.rounds) return false;
    Case rest = examination_.patient();
    rest.wrong = left;
    if (examination_.alone() && first.error < kMayBeRounding * examination_.error() &&
        explain_by_rounding(first, *altered, rest))
      return true;
    Examination next(rest, std::move(*altered), examination_.deadline());
    Explanation more = search(next, depth_ - 1);
    out_.tried += more.tried;
    if (more.chosen.empty() || more.chosen.back().judgement.breaks) return false;
    if (std::ranges::any_of(more.chosen, [](const Trial& each) { return each.hypothesis.rounds; }))
      return false;
    out_.chosen = {with_equals(first, trials_)};
    out_.chosen.insert(out_.chosen.end(), more.chosen.begin(), more.chosen.end());
    out_.rounding = more.rounding;
    return true;
  }

  // An op that is wrong and rounds more than the engine says besides.
  bool explain_by_rounding(const Trial& first, const Altered& altered, const Case& rest) {
    const parity::Forward& forward = altered.forward();
    // What is rounded is known of ops as they are meant, with other numbers.
    if (std::ranges::any_of(first.ops, [&](size_t op) { return forward.deviations.contains(op); }))
      return false;
    const WrongRows rows{rest.value, rest.wrong, std::ssize(rest.judged)};
    const PrecisionFindings found = find_precision(
        {forward, *rest.side.trace, rest.side.tokens, rest.side.precision, rest.used, rest.threads,
         [](const WrongRows&) { return false; }, [&] { return stop(); }, rest.products},
        {&rows, 1});
    if (found.all.size() != 1 || !found.all[0].proved || found.left > 0) return false;
    out_.chosen = {with_equals(first, trials_)};
    out_.chosen[0].judgement.explained = std::ssize(examination_.patient().wrong);
    out_.chosen[0].judgement.explained_ratio = found.all[0].ratio_after;
    out_.rounding = found.all[0];
    return true;
  }

  Examination& examination_;
  std::vector<Trial>& trials_;
  int depth_ = 2;  // causes that are looked for, together
  Explanation& out_;
};

}  // namespace

void explain_by_several(Examination& examination, std::vector<Trial>& trials, int depth,
                        Explanation& out) {
  SeveralCauses(examination, trials, out).run(depth);
}

std::optional<Trial> explains_nearly_all(Examination& examination, std::vector<Trial>& trials) {
  const auto best = std::ranges::min_element(trials, {}, [](const Trial& trial) {
    return trial.hypothesis.cause == kUnknown ? std::numeric_limits<double>::infinity()
                                              : trial.error;
  });
  if (best == trials.end() || best->hypothesis.cause == kUnknown) return std::nullopt;
  if (best->hypothesis.fitted > 0 || !(best->error < kNearlyAll * examination.error()))
    return std::nullopt;
  const Trial out = with_equals(*best, trials);
  const auto is_rival = [&](const Trial& other) {
    return other.error < kAnyOther * out.error && other.hypothesis.cause != out.hypothesis.cause &&
           std::ranges::find(out.alternatives, other.hypothesis.cause) == out.alternatives.end();
  };
  if (std::ranges::any_of(trials, is_rival)) return std::nullopt;
  // At rows that lie apart too.
  const auto altered = examination.alter(out.hypothesis.alter, out.ops);
  const size_t first = *std::ranges::min_element(out.ops);
  const auto rows = examination.spread();
  const auto before =
      examination.errors_of(examination.base(), examination.base().program().ops.size(), rows);
  const auto after = examination.errors_of(*altered, first, rows);
  if (before.size() != after.size() || after.empty()) return std::nullopt;
  for (size_t i = 0; i < after.size(); ++i)
    if (!(after[i] < kNearlyAll * before[i])) return std::nullopt;
  const auto judged = examination.judge(*altered, examination.patient().judged);
  if (!judged || judged->breaks) return std::nullopt;
  Trial made = out;
  made.judgement = *judged;
  return made;
}

}  // namespace lockstep::doctor
