#include "doctor/pooled.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "doctor/solvers.h"

namespace lockstep::doctor {
namespace {

// Of the rows, so many must be nearer to what was recorded: one row that stands out is no mistake
// of the op.
constexpr double kNearerRows = 0.75;
constexpr int64_t kFewestRows = 4;
// As well supported: so much of the best likelihood.
constexpr double kAsGood = 0.98;

// Errors relative to what they are of: results that are rounded are off by a share of themselves.
// Numbers next to nothing count as this share of their row's size.
constexpr double kLeastSize = 0.2;

// Squares of errors, by row.
struct Squares {
  std::vector<double> rows;
  int64_t numbers = 0;
  double fourth = 0;  // powers, over all
  double sum() const { return std::accumulate(rows.begin(), rows.end(), 0.0); }
  // Numbers of a normal distribution that have as much to say: few where a few errors are most.
  double independent() const {
    return fourth > 0 ? std::min(static_cast<double>(numbers), 3 * sum() * sum() / fourth) : 0;
  }
};

double mean_square(const double* row, int64_t count) {
  double sum = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(row[i])) continue;
    sum += row[i] * row[i];
    ++finite;
  }
  return finite > 0 ? sum / static_cast<double>(finite) : 0;
}

std::optional<Squares> squares_of(const Matrix& recorded, const Matrix& replayed,
                                  const Matrix& truth) {
  if (replayed.columns < recorded.columns || replayed.rows != recorded.rows) return std::nullopt;
  Squares out;
  for (int64_t r = 0; r < recorded.rows; ++r) {
    const double least = kLeastSize * kLeastSize * mean_square(truth.row(r), recorded.columns);
    out.rows.push_back(0);
    for (int64_t c = 0; c < recorded.columns; ++c) {
      const double actual = recorded.row(r)[c];
      const double right = truth.row(r)[c];
      if (!std::isfinite(actual) || !std::isfinite(right) || least == 0) continue;
      const double difference = actual - replayed.row(r)[c];
      if (!std::isfinite(difference)) return std::nullopt;
      const double square = difference * difference / (right * right + least);
      out.rows.back() += square;
      out.fourth += square * square;
      ++out.numbers;
    }
  }
  return out;
}

class Pool {
 public:
  explicit Pool(Examination& examination)
      : examination_(examination), positions_(examination.patient().wrong) {}

  std::optional<Pooled> run() {
    if (!examination_.usable() || !examination_.alone()) return std::nullopt;
    const auto recorded = examination_.recorded_at(positions_);
    const auto truth = examination_.truth_at(positions_);
    if (!recorded || !truth || recorded->rows < kFewestRows) return std::nullopt;
    recorded_ = *recorded;
    truth_ = *truth;
    const auto before = squares_of(recorded_, truth_, truth_);
    if (!before || before->sum() == 0) return std::nullopt;
    before_ = *before;
    for (const size_t op : examination_.stretch()) {
      hold(catalogue(examination_.findings(), op), op);
      const size_t ops[] = {op};
      hold(solve(examination_, ops), op);
    }
    return best();
  }

 private:
  void hold(std::vector<Hypothesis> hypotheses, size_t op) {
    for (Hypothesis& hypothesis : hypotheses) {
      if (examination_.late()) return;
      const size_t ops[] = {op};
      const auto altered = examination_.alter(hypothesis.alter, ops);
      if (!altered) continue;
      const Case& patient = examination_.patient();
      parity::Replay replay(altered->forward(), patient.side.precision, *patient.side.trace,
                            patient.side.tokens, patient.used, patient.threads);
      const auto replayed = replay.replayed_rows(patient.value, positions_);
      const auto after = replayed ? squares_of(recorded_, *replayed, truth_) : std::nullopt;
      if (!after || after->numbers != before_.numbers || !(after->sum() > 0)) continue;
      int64_t nearer = 0;
      int64_t other = 0;  // rows that the hypothesis changes
      for (size_t r = 0; r < after->rows.size(); ++r) {
        other += after->rows[r] != before_.rows[r] ? 1 : 0;
        nearer += after->rows[r] < before_.rows[r] ? 1 : 0;
      }
      if (other < kFewestRows ||
          static_cast<double>(nearer) < kNearerRows * static_cast<double>(other))
        continue;
      const double share = after->sum() / before_.sum();
      const double likelihood =
          -0.5 * std::min(before_.independent(), after->independent()) * std::log(share);
      if (likelihood < kConvincingLikelihood) continue;
      held_.push_back({std::move(hypothesis), op, likelihood, share, other, {}});
    }
  }

  std::optional<Pooled> best() {
    if (held_.empty()) return std::nullopt;
    const double most = std::ranges::max_element(held_, {}, &Pooled::likelihood)->likelihood;
    std::erase_if(held_, [&](const Pooled& each) { return each.likelihood < kAsGood * most; });
    std::ranges::stable_sort(held_, {}, [](const Pooled& each) {
      return std::pair(each.hypothesis.fitted, each.hypothesis.rank);
    });
    std::set<std::string> others;
    for (const Pooled& each : held_)
      if (each.hypothesis.cause != held_[0].hypothesis.cause) others.insert(each.hypothesis.cause);
    held_[0].alternatives.assign(others.begin(), others.end());
    return std::move(held_[0]);
  }

  Examination& examination_;
  const std::vector<int64_t>& positions_;
  Matrix recorded_;
  Matrix truth_;
  Squares before_;
  std::vector<Pooled> held_;
};

}  // namespace

std::optional<Pooled> find_pooled(Examination& examination) {
  return Pool(examination).run();
}

}  // namespace lockstep::doctor
