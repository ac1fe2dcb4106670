// Experiments on one checkpoint of one side: the judge's own replay of an altered forward pass,
// from what the side recorded.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "doctor/hypothesis.h"
#include "exec/f64/products.h"
#include "parity/replay.h"
#include "parity/scope.h"

namespace lockstep::doctor {

using parity::Matrix;

// A checkpoint that is wrong.
struct Case {
  const parity::SideScope& side;
  const model::Model& model;
  std::string used;  // the checkpoints that are read (trace/checkpoints.h)
  int threads = 1;
  op::ValueId value = -1;
  std::vector<int64_t> judged;  // positions
  std::vector<int64_t> wrong;   // of those
  double usual = 0;             // worst error over bound of the side's checkpoints that are right
  const std::atomic<bool>* interrupted = nullptr;  // set: stop soon; may be null
  exec::f64::Products& products = exec::f64::cpu_products();
};

// What the judge says of a hypothesis at all positions.
struct Judgement {
  int64_t explained = 0;        // rows that were wrong and are not
  std::vector<int64_t> left;    // that are still wrong
  bool breaks = false;          // rows that were right are wrong under it
  double ratio = 0;             // worst error over bound, of the rows that were wrong
  double explained_before = 0;  // the worst of the explained ones, before
  double explained_ratio = 0;   // and after
  bool whole() const { return left.empty(); }
};

// Errors over bounds that honest engines have: of a thousand the worst is at 0.3.
inline constexpr double kHonestRatio = 0.5;

// Of errors by row; infinite where there are none.
double root_mean_square(std::span<const double> errors);

class Examination {
 public:
  using Clock = std::chrono::steady_clock;
  static Clock::time_point after(double seconds) {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  // `base`: the forward pass with all that is explained already.
  Examination(const Case& wrong, Altered base, Clock::time_point deadline);

  const Case& patient() const { return case_; }
  const Altered& base() const { return base_; }
  Findings findings() const {
    return {base_.forward(), *case_.side.trace, case_.model, case_.wrong};
  }
  // The ops that may be the cause, by index; the last is the checkpoint's own.
  const std::vector<size_t>& stretch() const { return stretch_; }
  // One op alone, but for steps that no engine records.
  bool alone() const { return alone_; }
  Clock::time_point deadline() const { return deadline_; }
  bool late() const {
    return Clock::now() > deadline_ || (case_.interrupted != nullptr && *case_.interrupted);
  }

  // The first wrong rows, as recorded and as they should be.
  std::span<const int64_t> few() const { return few_; }
  // Wrong rows that lie apart, for numbers that show more in later rows.
  std::span<const int64_t> spread() const { return spread_; }
  const Matrix& recorded() const { return recorded_; }
  const Matrix& truth() const { return truth_; }
  double error() const { return error_; }                     // of those: root mean square
  std::span<const double> errors() const { return errors_; }  // of each
  double ratio_before() const { return ratio_before_; }       // worst of all wrong rows
  bool usable() const { return usable_; }

  // The base with a hypothesis in place; nothing where it cannot be.
  std::optional<Altered> alter(const Alteration& alteration, std::span<const size_t> ops) const;
  // The error that is left at the given rows (of few() and spread()); infinite where it cannot be
  // computed.
  double error_of(const Alteration& alteration, std::span<const size_t> ops,
                  std::span<const int64_t> rows);
  double error_of(const Altered& altered, size_t first_op, std::span<const int64_t> rows);
  // The same of each row by itself; empty where it cannot be computed.
  std::vector<double> errors_of(const Altered& altered, size_t first_op,
                                std::span<const int64_t> rows);
  std::optional<Judgement> judge(const Altered& altered, std::span<const int64_t> positions);
  // Whether the recorded rows lie clearly beside what the altered pass gives, on the line through
  // it and the true rows: it goes too far, or not far enough.
  bool misses(const Altered& altered);
  // The number that is furthest off at the first wrong row, and what the altered pass makes of it
  // (null: none explains it).
  std::optional<Element> work_out(const Altered* altered);
  // A value as recorded, or computed from what was.
  std::optional<Matrix> rows_of(op::ValueId value, std::span<const int64_t> positions);
  std::optional<Matrix> recorded_at(std::span<const int64_t> positions) const;
  // Root mean square of what rounding is expected to do to a row.
  double expected() const { return expected_; }
  // The checkpoint as another forward pass has it.
  std::optional<Matrix> replayed_at(const Altered& altered,
                                    std::span<const int64_t> positions) const;
  // The true values of the checkpoint.
  std::optional<Matrix> truth_at(std::span<const int64_t> positions);

 private:
  std::unique_ptr<parity::Replay> replay(const parity::Forward& forward) const;
  void decode_weights();
  std::vector<double> distances(const Matrix& replayed, std::span<const int64_t> rows) const;

  const Case& case_;
  Altered base_;
  Clock::time_point deadline_;
  std::unique_ptr<parity::Replay> replay_;  // of the base
  std::vector<size_t> stretch_;
  bool alone_ = true;
  bool usable_ = false;
  std::vector<int64_t> few_;
  std::vector<int64_t> spread_;
  std::vector<int64_t> known_;  // few and spread
  Matrix known_rows_;           // as recorded
  Matrix recorded_;
  Matrix truth_;
  double error_ = 0;
  std::vector<double> errors_;
  double ratio_before_ = 0;
  double expected_ = 0;
  std::vector<parity::OwnError> before_;  // by the base: all that were judged
};

}  // namespace lockstep::doctor
