// Products with weights are nearly all of the work. Rows are first judged by what rounding does at
// least, which shows how wrong each can be at most; what that leaves open is judged exactly.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.h"
#include "exec/f64/ops.h"
#include "parity/noise_expert_linear.h"
#include "parity/noise_linear.h"
#include "parity/replay.h"
#include "parity/rounding.h"

namespace lockstep::parity {
namespace {

// Of as many columns as were recorded.
bool same_numbers(const Matrix& actual, const Matrix& value) {
  for (int64_t r = 0; r < actual.rows; ++r)
    if (!std::equal(actual.row(r), actual.row(r) + actual.columns, value.row(r))) return false;
  return true;
}

// Noise: LinearNoise or ExpertNoise.
template <class Noise>
class Settling {
 public:
  Settling(const Matrix& actual, LinearNoise::Evaluated evaluated, const Noise& noise,
           std::span<const int64_t> positions, const std::vector<bool>& tainted,
           const std::optional<OwnError>& worst_so_far, int threads, Products& products)
      : actual_(actual),
        value_(std::move(evaluated.value)),
        variance_(std::move(evaluated.at_least)),
        all_known_(evaluated.all_known),
        noise_(noise),
        positions_(positions),
        tainted_(tainted),
        worst_(worst_so_far),
        threads_(threads),
        products_(products),
        out_(positions.size()) {
    std::vector<int64_t> all(positions.size());
    std::iota(all.begin(), all.end(), int64_t{0});
    measure(all, false);
  }

  // Before run() none is settled.
  const std::vector<OwnError>& rows() const { return out_; }
  const Matrix& value() const { return value_; }
  bool any_may_be_wrong() const { return std::ranges::any_of(out_, &OwnError::defect); }

  // The worst row, whichever it is, and every defect. Rows may be much alike: those that look worst
  // are settled first, more at a time, since each may show that no other is worse.
  void run() {
    settle_first(open_rows(), 1);
    find_known();
    std::vector<LinearNoise::Element> elements;
    const std::vector<int64_t> open = open_rows();
    std::vector<std::vector<int64_t>> above(open.size());
    parallel_rows(std::ssize(open), actual_.columns, threads_, [&](int64_t i) {
      above[static_cast<size_t>(i)] = elements_above(open[static_cast<size_t>(i)]);
    });
    for (size_t i = 0; i < open.size(); ++i)
      for (const int64_t column : above[i]) elements.push_back({open[i], column});
    noise_.find(std::move(elements), value_, variance_);
    measure(open_rows(), false);
    size_t count = 1;
    for (auto left = open_rows(); !left.empty(); left = open_rows()) {
      settle_first(std::move(left), count);
      count *= 2;
    }
  }

  // Of matrices that are no longer needed.
  LinearNoise::Evaluated room() { return {std::move(value_), std::move(variance_)}; }

 private:
  OwnError& row(int64_t r) { return out_[static_cast<size_t>(r)]; }
  std::span<const double> numbers(const Matrix& matrix, int64_t r) const {
    return {matrix.row(r), static_cast<size_t>(actual_.columns)};
  }

  void measure(const std::vector<int64_t>& rows, bool settled) {
    const auto some = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) measure_row(rows[static_cast<size_t>(i)], settled);
    };
    parallel_for(std::ssize(rows), std::max<int64_t>(1, 10'000 / actual_.columns), some, threads_);
  }

  void measure_row(int64_t r, bool settled) {
    OwnError own =
        compare_row(numbers(actual_, r), numbers(value_, r), numbers(variance_, r), false);
    own.position = positions_[static_cast<size_t>(r)];
    own.settled = settled;
    // A NaN that an input had is not this op's.
    if (own.non_finite && tainted_[static_cast<size_t>(r)]) {
      own.non_finite = false;
      own.worst_ratio = 0;
    }
    row(r) = own;
  }

  void settle_first(std::vector<int64_t> rows, size_t count) {
    std::ranges::sort(rows, [&](int64_t a, int64_t b) { return row(a).is_worse_than(row(b)); });
    rows.resize(std::min(rows.size(), count));
    noise_.find_rows(rows, value_, variance_);
    measure(rows, true);
    for (const int64_t r : rows)
      if (!worst_ || row(r).is_worse_than(*worst_)) worst_ = row(r);
  }

  // Where engines do not round as they say, many rows look worse than they are without the errors
  // that are meant.
  void find_known() {
    constexpr size_t kFew = 4;
    if (all_known_ || open_rows().size() <= kFew) return;
    variance_ = noise_.at_least(value_, products_);
    measure(open_rows(), false);
  }

  // Rows that may be worse than all that are settled, or wrong.
  std::vector<int64_t> open_rows() {
    std::vector<int64_t> out;
    for (int64_t r = 0; r < std::ssize(out_); ++r)
      if (!row(r).settled && (row(r).defect() || !worst_ || row(r).is_worse_than(*worst_)))
        out.push_back(r);
    return out;
  }

  // Elements that alone may make a row worse than the worst, where these are few.
  std::vector<int64_t> elements_above(int64_t r) {
    const double limit = kElementLimit * std::min(1.0, worst_->ratio());
    auto out = elements_beyond(limit, numbers(actual_, r), numbers(value_, r),
                               numbers(variance_, r), false);
    if (std::ssize(out) > actual_.columns / 8) out.clear();
    return out;
  }

  const Matrix& actual_;
  Matrix value_;
  Matrix variance_;  // exact where that was asked for, else at least
  const bool all_known_;
  const Noise& noise_;
  std::span<const int64_t> positions_;
  const std::vector<bool>& tainted_;
  std::optional<OwnError> worst_;  // of what is settled, here and before
  const int threads_;
  Products& products_;
  std::vector<OwnError> out_;
};

}  // namespace

void Replay::keep_worst(const std::vector<OwnError>& rows, const Matrix& value,
                        std::optional<LooksWorst>& kept) {
  const auto worst = std::ranges::max_element(
      rows, [](const OwnError& a, const OwnError& b) { return b.is_worse_than(a); });
  if (kept && !worst->is_worse_than(kept->own)) return;
  kept = {*worst, Matrix(1, value.columns)};
  std::copy_n(value.row(worst - rows.begin()), value.columns, kept->value.row(0));
}

std::optional<std::vector<OwnError>> Replay::judge_linear(op::ValueId id, Positions positions,
                                                          const Others& others,
                                                          const Matrix* replayed) {
  const op::Op& op = *producer_[static_cast<size_t>(id)];
  const auto actual = actual_rows(id, positions);
  std::vector<Estimated> inputs;
  std::vector<const Matrix*> values;
  for (const op::ValueId input : op.inputs) {
    inputs.push_back(obtain(input, positions));
    if (inputs.back() == nullptr) return std::nullopt;
    values.push_back(&inputs.back()->value);
  }
  if (!actual) return std::nullopt;
  Arithmetic arithmetic = arithmetic_of_op(op, id);
  std::vector<double> largest;
  if (arithmetic.products.scale == Scale::kTensor) {
    largest = largest_in_steps(op.inputs[0], *values[0], positions);
    arithmetic.largest = largest;
  }
  const auto judge = [&](const auto& noise) {
    LinearNoise::Evaluated evaluated;
    if (replayed != nullptr) {
      evaluated = {*replayed, Matrix(replayed->rows, replayed->columns)};
    } else if (arithmetic.compute < kSingle) {
      // Our own reference is exact; then nothing has to be granted.
      evaluated.value = exec::f64::evaluate(op.what, values, program_.value(id).width, {}, threads_,
                                            nullptr, products_);
      evaluated.at_least = same_numbers(*actual, evaluated.value)
                               ? Matrix(evaluated.value.rows, evaluated.value.columns)
                               : noise.at_least(evaluated.value, products_);
    } else {
      evaluated = noise.evaluate(products_, &*actual, std::move(room_));
    }
    Settling settling(*actual, std::move(evaluated), noise, positions, inputs[0]->tainted,
                      others.worst, threads_, products_);
    if (others.looks_worst == nullptr || settling.any_may_be_wrong())
      settling.run();
    else
      keep_worst(settling.rows(), settling.value(), *others.looks_worst);
    room_ = settling.room();
    return settling.rows();
  };
  if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what))
    return judge(ExpertNoise(*experts, *values[0], *values[1], arithmetic, threads_));
  return judge(LinearNoise(std::get<op::Linear>(op.what), *values[0], arithmetic, threads_));
}

}  // namespace lockstep::parity
