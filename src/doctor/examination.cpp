#include "doctor/examination.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::doctor {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kMaskedBelow = -5e3;  // of scores, as the judge has it (parity/own_error.cpp)

// The first wrong rows cost least where attention has to be replayed from before its keys; rows
// that lie apart tell more where they cost the same.
std::vector<int64_t> choose_few(std::span<const int64_t> wrong, bool alone) {
  if (wrong.size() <= 3) return {wrong.begin(), wrong.end()};
  if (!alone) return {wrong.begin(), wrong.begin() + 2};
  return {wrong.front(), wrong[wrong.size() / 2], wrong.back()};
}

// Weights of a stretch that are decoded once for all experiments: 256 MiB.
constexpr int64_t kMostDecoded = int64_t{1} << 26;

std::vector<int64_t> choose_spread(std::span<const int64_t> wrong, bool alone) {
  const size_t last = alone ? wrong.size() - 1 : std::min<size_t>(wrong.size() - 1, 12);
  std::vector<int64_t> out = {wrong[0], wrong[last / 3], wrong[2 * last / 3], wrong[last]};
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

double root_mean_square(std::span<const double> errors) {
  double squares = 0;
  for (const double error : errors) squares += error * error;
  return errors.empty() ? kInfinite : std::sqrt(squares / static_cast<double>(errors.size()));
}

Examination::Examination(const Case& wrong, Altered base, Clock::time_point deadline)
    : case_(wrong), base_(std::move(base)), deadline_(deadline) {
  replay_ = replay(base_.forward());
  const op::Program& program = base_.program();
  stretch_ = replay_->stretch(case_.value, case_.wrong.front());
  for (const size_t op : stretch_)
    for (const op::ValueId output : base_.program().ops[op].outputs)
      if (output != case_.value && program.value(output).checkpoint &&
          !(std::holds_alternative<op::Attention>(program.ops[op].what) && op == stretch_.back()))
        alone_ = false;
  few_ = choose_few(case_.wrong, alone_);
  spread_ = choose_spread(case_.wrong, alone_);
  std::ranges::set_union(few_, spread_, std::back_inserter(known_));
  if (!alone_) decode_weights();
  const auto judged = replay(base_.forward())->judge(case_.value, case_.judged);
  if (!judged) return;
  before_ = *judged;
  for (const parity::OwnError& own : before_)
    if (std::ranges::binary_search(case_.wrong, own.position)) {
      ratio_before_ = std::max(ratio_before_, own.non_finite ? kInfinite : own.ratio());
      expected_ = std::max(expected_, own.expected);
    }
  const auto actual = replay_->recorded_rows(case_.value, few_);
  const auto truth = replay_->replayed_rows(case_.value, few_);
  const auto known = replay_->recorded_rows(case_.value, known_);
  if (!actual || !truth || !known) return;
  recorded_ = *actual;
  known_rows_ = *known;
  truth_ = *truth;
  errors_ = errors_of(base_, program.ops.size(), few_);
  error_ = root_mean_square(errors_);
  usable_ = error_ > 0;
}

// Most of the time of a stretch's replay at few rows would go to the same weights over and over.
void Examination::decode_weights() {
  int64_t numbers = 0;
  for (const size_t op : stretch_)
    if (const op::Weight* weight = weight_of(base_.op(op)))
      numbers += weight->rows * weight->columns;
  if (numbers > kMostDecoded) return;
  for (const size_t op : stretch_)
    if (op::Weight* weight = weight_of(base_.op(op));
        weight != nullptr && weight->format->format() != quant::Format::kF32)
      *weight = base_.keep(*weight, decode(*weight));
  replay_ = replay(base_.forward());
}

std::unique_ptr<parity::Replay> Examination::replay(const parity::Forward& forward) const {
  return std::make_unique<parity::Replay>(forward, case_.side.precision, *case_.side.trace,
                                          case_.side.tokens, case_.used, case_.threads,
                                          case_.products);
}

// Root mean square of what each recorded row differs by. A score that is masked on one side only
// counts as much as the largest of its row.
std::vector<double> Examination::distances(const Matrix& replayed,
                                           std::span<const int64_t> rows) const {
  const bool scores = base_.program().value(case_.value).shape == op::Value::Shape::kScores;
  std::vector<double> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto at = std::ranges::find(known_, rows[i]) - known_.begin();
    const double* actual = known_rows_.row(at);
    const double* other = replayed.row(static_cast<int64_t>(i));
    double largest = 1;
    for (int64_t c = 0; c < known_rows_.columns; ++c)
      if (std::isfinite(actual[c]) && !(scores && actual[c] <= kMaskedBelow))
        largest = std::max(largest, std::fabs(actual[c]));
    double squares = 0;
    int64_t count = 0;
    for (int64_t c = 0; c < known_rows_.columns; ++c) {
      const bool hidden = scores && actual[c] <= kMaskedBelow;
      const bool other_hidden = scores && other[c] <= kMaskedBelow;
      double difference = actual[c] - other[c];
      if (hidden || other_hidden) difference = hidden == other_hidden ? 0 : largest;
      if (!std::isfinite(difference)) {
        if (!std::isfinite(actual[c])) continue;
        return {};
      }
      squares += difference * difference;
      ++count;
    }
    if (count > 0) out.push_back(std::sqrt(squares / static_cast<double>(count)));
  }
  return out;
}

std::optional<Altered> Examination::alter(const Alteration& alteration,
                                          std::span<const size_t> ops) const {
  Altered out = base_;
  for (const size_t op : ops)
    if (!alteration(out, op)) return std::nullopt;
  return out;
}

std::vector<double> Examination::errors_of(const Altered& altered, size_t first_op,
                                           std::span<const int64_t> rows) {
  const auto trial = replay(altered.forward());
  trial->adopt(*replay_, first_op);
  // How many keys a row of scores has depends on the rows beside it.
  const bool scores = base_.program().value(case_.value).shape == op::Value::Shape::kScores;
  const auto replayed = trial->replayed_rows(case_.value, scores ? known_ : rows);
  if (!replayed || replayed->columns < known_rows_.columns) return {};
  if (!scores) return distances(*replayed, rows);
  Matrix some(std::ssize(rows), replayed->columns);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(replayed->row(std::ranges::find(known_, rows[i]) - known_.begin()), some.columns,
                some.row(static_cast<int64_t>(i)));
  return distances(some, rows);
}

double Examination::error_of(const Altered& altered, size_t first_op,
                             std::span<const int64_t> rows) {
  return root_mean_square(errors_of(altered, first_op, rows));
}

double Examination::error_of(const Alteration& alteration, std::span<const size_t> ops,
                             std::span<const int64_t> rows) {
  const auto altered = alter(alteration, ops);
  return altered ? error_of(*altered, *std::ranges::min_element(ops), rows) : kInfinite;
}

std::optional<Judgement> Examination::judge(const Altered& altered,
                                            std::span<const int64_t> positions) {
  const auto judged = replay(altered.forward())->judge(case_.value, positions);
  if (!judged) return std::nullopt;
  Judgement out;
  for (const parity::OwnError& own : *judged) {
    const double ratio = own.non_finite ? kInfinite : own.ratio();
    if (!std::ranges::binary_search(case_.wrong, own.position)) {
      out.breaks = out.breaks || own.defect();
      continue;
    }
    out.ratio = std::max(out.ratio, ratio);
    const auto at = std::ranges::find(before_, own.position, &parity::OwnError::position);
    const double before = at == before_.end() ? 0 : at->non_finite ? kInfinite : at->ratio();
    if (own.defect()) {
      out.left.push_back(own.position);
      continue;
    }
    ++out.explained;
    out.explained_ratio = std::max(out.explained_ratio, ratio);
    out.explained_before = std::max(out.explained_before, before);
  }
  return out;
}

bool Examination::misses(const Altered& altered) {
  // What is left must be mostly on the line, by more than rounding that has a direction, and more
  // than chance puts there.
  constexpr double kOfTheWay = 0.01;
  constexpr double kShareOnLine = 0.5;
  constexpr double kLikelihood = 32;
  const auto truth = truth_at(known_);
  const auto other = replayed_at(altered, known_);
  if (!truth || !other) return false;
  const int64_t columns = std::min({known_rows_.columns, truth->columns, other->columns});
  double along = 0;   // of what is left, along the line
  double length = 0;  // of the line, squared
  double left = 0;
  int64_t count = 0;
  for (int64_t r = 0; r < known_rows_.rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const double step = other->row(r)[c] - truth->row(r)[c];
      const double error = known_rows_.row(r)[c] - other->row(r)[c];
      if (!std::isfinite(step) || !std::isfinite(error)) continue;
      along += error * step;
      length += step * step;
      left += error * error;
      ++count;
    }
  if (length == 0 || left == 0) return false;
  const double share = along * along / (length * left);
  return std::fabs(along) > kOfTheWay * length && share > kShareOnLine &&
         -0.5 * static_cast<double>(count) * std::log1p(-share) > kLikelihood;
}

std::optional<Element> Examination::work_out(const Altered* altered) {
  if (!usable_ || truth_.columns < recorded_.columns) return std::nullopt;
  int64_t furthest = 0;
  double most = -1;
  for (int64_t c = 0; c < recorded_.columns; ++c) {
    const double difference = std::fabs(recorded_.row(0)[c] - truth_.row(0)[c]);
    if (std::isfinite(difference) && difference > most) {
      most = difference;
      furthest = c;
    }
  }
  Element out{few_.front(), place_of(base_.program(), case_.value, furthest, recorded_.columns),
              recorded_.row(0)[furthest], truth_.row(0)[furthest]};
  const auto work = [&](parity::Replay& by, const parity::Forward& forward) {
    return doctor::work_out(by, forward, *case_.side.trace, case_.side.tokens, case_.value,
                            few_.front(), furthest, recorded_.columns);
  };
  out.right = work(*replay_, base_.forward());
  if (altered == nullptr) return out;
  // All of few(), so that rows of scores have the same keys.
  const auto other = replay(altered->forward());
  const auto found = other->replayed_rows(case_.value, few_);
  if (!found || found->columns < recorded_.columns) return std::nullopt;
  out.found = found->row(0)[furthest];
  out.wrong = work(*other, altered->forward());
  for (size_t i = 0; i < few_.size(); ++i) {
    const double* row = found->row(static_cast<int64_t>(i));
    out.rows.push_back({few_[i], std::vector<float>(row, row + found->columns)});
  }
  return out;
}

std::optional<Matrix> Examination::rows_of(op::ValueId value, std::span<const int64_t> positions) {
  return replay_->known_rows(value, positions);
}

std::optional<Matrix> Examination::recorded_at(std::span<const int64_t> positions) const {
  return replay_->recorded_rows(case_.value, positions);
}

std::optional<Matrix> Examination::replayed_at(const Altered& altered,
                                               std::span<const int64_t> positions) const {
  return replay(altered.forward())->replayed_rows(case_.value, positions);
}

std::optional<Matrix> Examination::truth_at(std::span<const int64_t> positions) {
  return replay_->replayed_rows(case_.value, positions);
}

}  // namespace lockstep::doctor
