#include "doctor/pooled.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/parallel.h"
#include "doctor/quantities.h"
#include "doctor/solvers.h"

namespace lockstep::doctor {
namespace {

// Errors of one row may have one reason, as a factor that is rounded once: rows are what is
// independent. So many deviations from none must they be, all rows together, ...
constexpr double kFewestDeviations = 8;
// ... and so many rows must have a say: one that stands out is no mistake of the op.
constexpr double kFewestRows = 6;
constexpr double kGainingLayers = 0.75;
// As well supported: so much of the best likelihood.
constexpr double kAsGood = 0.98;

// Errors relative to what they are of: results that are rounded are off by a share of themselves.
// Numbers next to nothing count as this share of their row's size.
constexpr double kLeastSize = 0.2;

// How far rows lie towards a hypothesis: 0 where they should be, 1 where it says.
class Direction {
 public:
  // Products of the error with the step that the hypothesis makes, and of the step with itself.
  void add(double along, double length) {
    if (length <= 0) return;
    rows_.push_back({along / length, length});
  }
  // Rows of equal weight that would say as much.
  double rows() const {
    const auto [sum, squares] = weights();
    return squares > 0 ? sum * sum / squares : 0;
  }
  // The mean in units of its own deviation.
  double deviations() const {
    const double sum = weights().first;
    if (sum <= 0) return 0;
    double mean = 0;
    for (const auto& [at, weight] : rows_) mean += at * weight / sum;
    double variance = 0;
    for (const auto& [at, weight] : rows_)
      variance += (at - mean) * (at - mean) * weight * weight / (sum * sum);
    return variance > 0 ? mean / std::sqrt(variance) : 0;
  }

 private:
  std::pair<double, double> weights() const {
    double sum = 0;
    double squares = 0;
    for (const auto& [at, weight] : rows_) {
      sum += weight;
      squares += weight * weight;
    }
    return {sum, squares};
  }

  std::vector<std::pair<double, double>> rows_;
};

// Squares of errors, by row.
struct Squares {
  std::vector<double> rows;
  std::vector<double> along;   // products of the error without the hypothesis and its step
  std::vector<double> length;  // squares of the step
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
                                  const Matrix& truth, int threads) {
  if (replayed.columns < recorded.columns || replayed.rows != recorded.rows) return std::nullopt;
  const auto count = static_cast<size_t>(recorded.rows);
  Squares out{std::vector<double>(count), std::vector<double>(count), std::vector<double>(count)};
  std::vector<double> fourth(count);
  std::vector<int64_t> numbers(count);
  std::atomic<bool> finite = true;
  parallel_rows(recorded.rows, 4 * recorded.columns, threads, [&](int64_t r) {
    const double least = kLeastSize * kLeastSize * mean_square(truth.row(r), recorded.columns);
    const auto row = static_cast<size_t>(r);
    for (int64_t c = 0; c < recorded.columns; ++c) {
      const double actual = recorded.row(r)[c];
      const double right = truth.row(r)[c];
      if (!std::isfinite(actual) || !std::isfinite(right) || least == 0) continue;
      const double difference = actual - replayed.row(r)[c];
      if (!std::isfinite(difference)) {
        finite = false;
        return;
      }
      const double square = difference * difference / (right * right + least);
      out.rows[row] += square;
      const double step = replayed.row(r)[c] - right;
      out.along[row] += (actual - right) * step / (right * right + least);
      out.length[row] += step * step / (right * right + least);
      fourth[row] += square * square;
      ++numbers[row];
    }
  });
  if (!finite) return std::nullopt;
  out.numbers = std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
  out.fourth = std::accumulate(fourth.begin(), fourth.end(), 0.0);
  return out;
}

// One layer: what was recorded, and how far off it is.
class PooledLayer {
 public:
  static std::optional<PooledLayer> take(Examination& examination) {
    if (!examination.usable() || !examination.alone()) return std::nullopt;
    PooledLayer out(examination);
    const auto recorded = examination.recorded_at(out.positions());
    const auto truth = examination.truth_at(out.positions());
    if (!recorded || !truth || static_cast<double>(recorded->rows) < kFewestRows)
      return std::nullopt;
    out.recorded_ = *recorded;
    out.truth_ = *truth;
    const auto before = squares_of(out.recorded_, out.truth_, out.truth_, out.threads());
    if (!before || before->sum() == 0) return std::nullopt;
    out.before_ = *before;
    return out;
  }

  Examination& examination() const { return *examination_; }
  const Squares& before() const { return before_; }

  // With an op of the stretch altered, by its place there.
  std::optional<Squares> after(const Alteration& alteration, size_t place) const {
    const auto& stretch = examination_->stretch();
    if (place >= stretch.size()) return std::nullopt;
    const size_t ops[] = {stretch[place]};
    const auto altered = examination_->alter(alteration, ops);
    if (!altered) return std::nullopt;
    const auto replayed = examination_->replayed_at(*altered, positions());
    auto out = replayed ? squares_of(recorded_, *replayed, truth_, threads()) : std::nullopt;
    if (!out || out->numbers != before_.numbers || !(out->sum() > 0)) return std::nullopt;
    return out;
  }

  double likelihood(const Squares& after) const {
    return -0.5 * std::min(before_.independent(), after.independent()) *
           std::log(after.sum() / before_.sum());
  }

 private:
  explicit PooledLayer(Examination& examination) : examination_(&examination) {}
  const std::vector<int64_t>& positions() const { return examination_->patient().wrong; }
  int threads() const { return examination_->patient().threads; }

  Examination* examination_;
  Matrix recorded_;
  Matrix truth_;
  Squares before_;
};

class Pool {
 public:
  explicit Pool(std::span<const std::unique_ptr<Examination>> layers) {
    for (size_t i = 0; i < layers.size(); ++i)
      if (auto layer = PooledLayer::take(*layers[i])) {
        layers_.push_back(std::move(*layer));
        numbers_.push_back(i);
      }
  }

  std::optional<Pooled> run() {
    if (layers_.empty()) return std::nullopt;
    std::vector<size_t> all(layers_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Examination& examination = layers_[i].examination();
      for (size_t place = 0; place < examination.stretch().size(); ++place) {
        const size_t op = examination.stretch()[place];
        for (const Hypothesis& each : catalogue(examination.findings(), op)) {
          // What rounds its results may round these too.
          if (each.cause == "rope.precision") continue;
          hold(each, place, {i});
          // Of the first layer: others have the same.
          if (i == 0 && all.size() > 1 && !each.of_one_op) hold(each, place, all);
        }
        for (const Quantity& each : quantities_of(examination.base().program().ops[op], false)) {
          fit(each, place, {i});
          if (i == 0 && all.size() > 1) fit(each, place, all);
        }
      }
    }
    return best();
  }

 private:
  bool late() const { return layers_[0].examination().late(); }

  // The number that makes the rows of these layers likeliest, near the model's own: what is further
  // off does not hide.
  void fit(const Quantity& quantity, size_t place, const std::vector<size_t>& layers) {
    if (late()) return;
    const auto unlikelihood = [&](double power) {
      double out = 0;
      for (const size_t i : layers) {
        const auto after = layers_[i].after(quantity.alter(std::pow(10.0, power)), place);
        if (!after || late()) return std::numeric_limits<double>::infinity();
        out -= layers_[i].likelihood(*after);
      }
      return out;
    };
    const bool wide = quantity.cause == "norm.epsilon";
    const double own = quantity.own > 0 ? std::log10(quantity.own) : quantity.low;
    const double low = quantity.own > 0 ? own - (wide ? kWideRange : kNearRange) : quantity.low;
    const double high = quantity.own > 0 ? own + (wide ? kWideRange : kNearRange) : quantity.high;
    const double power = minimize(unlikelihood, low, high, kPooledSteps, kPooledSections);
    const double least = unlikelihood(power);
    if (!std::isfinite(least)) return;
    // The number with the fewest digits that is nearly as likely.
    double value = std::pow(10.0, power);
    for (int digits = 1; digits <= 6; ++digits) {
      const double rounded = std::stod(fmt::format("{:.{}g}", std::pow(10.0, power), digits));
      if (rounded > 0 && unlikelihood(std::log10(rounded)) <= least + kNearlyAsLikely) {
        value = rounded;
        break;
      }
    }
    hold(quantity.hypothesis(value), place, layers);
  }

  void hold(const Hypothesis& hypothesis, size_t place, const std::vector<size_t>& layers) {
    if (late()) return;
    Pooled made{hypothesis, {}, 0, 1, 0, {}};
    Direction direction;
    size_t gaining = 0;
    double before = 0;
    double left = 0;
    for (const size_t i : layers) {
      const PooledLayer& layer = layers_[i];
      const auto after = layer.after(hypothesis.alter, place);
      if (!after) return;
      for (size_t r = 0; r < after->rows.size(); ++r) {
        made.rows += after->length[r] > 0 ? 1 : 0;
        direction.add(after->along[r], after->length[r]);
      }
      const double likelihood = layer.likelihood(*after);
      gaining += likelihood > 0 ? 1 : 0;
      made.likelihood += likelihood;
      made.layers.push_back(numbers_[i]);
      before += layer.before().sum();
      left += after->sum();
    }
    made.share = left / before;
    if (made.likelihood < kConvincingLikelihood || direction.rows() < kFewestRows ||
        direction.deviations() < kFewestDeviations ||
        static_cast<double>(gaining) < kGainingLayers * static_cast<double>(layers.size()))
      return;
    held_.push_back(std::move(made));
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

  static constexpr double kNearRange = 0.15;  // decades
  static constexpr double kWideRange = 4;
  static constexpr int kPooledSteps = 24;
  static constexpr int kPooledSections = 24;
  static constexpr double kNearlyAsLikely = 3;

  std::vector<PooledLayer> layers_;
  std::vector<size_t> numbers_;  // of those that were given
  std::vector<Pooled> held_;
};

}  // namespace

std::optional<Pooled> find_pooled(std::span<const std::unique_ptr<Examination>> layers) {
  return Pool(layers).run();
}

}  // namespace lockstep::doctor
