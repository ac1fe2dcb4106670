// Replays ops in double precision from the values that an engine recorded, and tells how far its
// recorded results are from what they should have been: each op's own error, against what rounding
// explains.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "op/program.h"
#include "parity/arithmetic.h"
#include "parity/derived_choices.h"
#include "parity/forward.h"
#include "parity/noise.h"
#include "parity/noise_experts.h"
#include "parity/noise_linear.h"
#include "parity/own_error.h"
#include "trace/trace.h"

namespace lockstep::parity {

class Replay {
 public:
  // `tokens`: of every position. The weights of `forward` are the truth. Of the trace only the
  // checkpoints in the set `used` (trace/checkpoints.h) are read: a bug between two of them is an
  // error of the second, and cannot pass as inherited from one that nobody judged.
  // `precision`: of the engine's arithmetic.
  Replay(const Forward& forward, const trace::Precision& precision, const trace::Trace& trace,
         std::span<const int32_t> tokens, std::string_view used, int threads,
         Products& products = exec::f64::cpu_products());

  // The own error of a recorded checkpoint at the given positions, where it was recorded. Inputs
  // that were not recorded are computed from those before them, with the rounding that this adds.
  // Nothing where that cannot be done. The worst row and all defects are settled, or all rows.
  enum class Settle { kWorst, kAll };
  std::optional<std::vector<OwnError>> judge(op::ValueId id, std::span<const int64_t> positions,
                                             Settle settle = Settle::kWorst);

  // How far recorded rows are from replayed ones, without what rounding explains: `expected` is 0.
  // Many times quicker.
  std::optional<std::vector<OwnError>> measure(op::ValueId id, std::span<const int64_t> positions);

  // Takes over what the replay of another forward pass has computed, of ops before `op`: the two
  // passes must not differ there.
  void adopt(const Replay& other, size_t op);

  // Rows as recorded, and as replayed; nothing where either cannot be had. Scores as
  // [positions, heads * keys].
  std::optional<Matrix> recorded_rows(op::ValueId id, std::span<const int64_t> positions) const;
  // `end`: after the last position that will be asked for; attention's inputs are then found once.
  std::optional<Matrix> replayed_rows(op::ValueId id, std::span<const int64_t> positions,
                                      int64_t end = 0);
  // How many of these positions to ask for at a time, so that memory stays bounded.
  size_t group_rows(op::ValueId id, std::span<const int64_t> positions) const {
    return rows_at_a_time(id, positions);
  }
  // Of values that are judged, instead of the number that is right for the memory of a machine.
  void judge_numbers_at_a_time(int64_t count) { judged_at_a_time_ = count; }
  // Of the trace nothing else is read from now on.
  void use_only(const std::set<std::string>& names);
  // Recorded, or computed from what was.
  std::optional<Matrix> known_rows(op::ValueId id, std::span<const int64_t> positions);

  // Experts that were not recorded, of what was judged so far.
  DerivedChoices derived_choices() const;

  // The ops whose results were not recorded at a position and that go into this value, by index,
  // its own included.
  std::vector<size_t> stretch(op::ValueId id, int64_t position) const;

  // The recorded checkpoint that a judgement of this one starts from, where others that lie between
  // the two were not recorded at the position: then it is not known which op of the stretch went
  // wrong. Empty: the stretch starts at the tokens. Nothing: all that lies before was recorded.
  std::optional<std::string> starts_after(op::ValueId id, int64_t position) const;

  // Rows as recorded and as they should have been, and what went into them, where that can be had.
  struct Input {
    op::ValueId id = -1;
    Matrix value;
    bool recorded = false;
  };
  struct Open {
    Matrix recorded;
    Matrix replayed;
    Matrix variance;  // of the honest rounding error of each element
    std::vector<bool> tainted;
    std::vector<Input> inputs;
  };
  std::optional<Open> open(op::ValueId id, std::span<const int64_t> positions);

  // Which elements of each row are wrong, [positions]. The line is 0, or the head of a score.
  struct Element {
    int64_t line = 0;
    int64_t column = 0;
  };
  std::vector<std::vector<Element>> wrong_elements(op::ValueId id,
                                                   std::span<const int64_t> positions);

 private:
  // Examples of a value that was not recorded. Their spread is taken over whole rows.
  static constexpr int kSamples = 2;
  // Numbers of values that were not recorded which are kept for reuse.
  static constexpr int64_t kKept = 1 << 25;
  static constexpr int64_t kJudgedAtATime = 1 << 23;

  static bool is_scores(const op::Value& value) { return value.shape == op::Value::Shape::kScores; }

  // A value at some positions, one row each. Where it was not recorded, what rounding may have
  // done to it: by element, as far as errors act by themselves, and a few examples of the whole.
  struct Estimate {
    Matrix value;
    Matrix variance;              // empty: recorded
    std::vector<Matrix> samples;  // empty: recorded
    std::vector<bool> tainted;    // by row: made from a NaN or an infinity
  };
  using Estimated = std::shared_ptr<const Estimate>;  // null: cannot be had
  using Positions = std::span<const int64_t>;
  using Evaluate = std::function<Matrix(std::span<const Matrix* const>)>;

  // What a replayed value is off by, from its own op and from its inputs.
  struct Outcome {
    Estimate estimate;  // its variance: from own rounding and, by element, from the inputs
    Matrix own;         // variance of this op's rounding alone
  };

  std::optional<trace::Trace::Row> usable_row(op::ValueId id, int64_t position) const;
  bool recorded(op::ValueId id, Positions positions) const;
  int64_t score_width(const op::Op& attention, Positions positions) const;
  Matrix read(op::ValueId id, Positions positions) const;
  Arithmetic arithmetic_of_op(const op::Op& op, op::ValueId id) const;
  std::vector<double> largest_in_steps(op::ValueId id, const Matrix& rows,
                                       Positions positions) const;

  Estimated obtain(op::ValueId id, Positions positions);
  Estimated derive(op::ValueId id, Positions positions);
  Estimated derive_some(op::ValueId id, Positions positions);
  Estimated derive_in_parts(op::ValueId id, Positions positions, size_t rows);
  std::optional<Outcome> evaluate(op::ValueId id, Positions positions);
  std::optional<Outcome> evaluate_op(const op::Op& op, op::ValueId id, Positions positions);
  // Where the forward pass deviates (replay_deviation.cpp).
  const op::Deviation* deviation_of(const op::Op& op) const;
  Estimated obtain_input(const op::Op& op, size_t index, Positions positions);
  struct Placed {
    std::vector<int32_t> tokens;
    std::vector<int64_t> positions;
  };
  std::optional<Placed> place_of(const op::Op& op, Positions positions) const;
  std::optional<Outcome> evaluate_attention(const op::Op& op, op::ValueId id, Positions positions);
  // What was recorded beside what it should have been.
  struct Held {
    Matrix actual;
    Outcome replayed;
  };
  std::optional<Held> hold(op::ValueId id, Positions positions);
  std::optional<Matrix> actual_rows(op::ValueId id, Positions positions) const;
  void compute_rounding(bool whether);
  std::optional<std::vector<OwnError>> judge_recorded(op::ValueId id, Positions positions,
                                                      Settle settle);
  // The row of a product that looks worst. It is settled when all parts of the positions are known,
  // since it often shows that no other is worse.
  struct LooksWorst {
    OwnError own;
    Matrix value;  // as it should have been
  };
  // What is known of other positions. Where only the worst counts, what is less than that need not
  // be settled.
  struct Others {
    std::optional<OwnError> worst;                     // settled
    std::optional<LooksWorst>* looks_worst = nullptr;  // null: the worst is to be settled now
  };
  std::optional<std::vector<OwnError>> judge_some(op::ValueId id, Positions positions,
                                                  Settle settle, const Others& others);
  // Experts that tokens chose (replay_choice.cpp).
  std::optional<std::vector<OwnError>> judge_experts_chosen(op::ValueId id, Positions positions);
  std::vector<ExpertScores> scores_of_experts(const op::Op& op, op::ValueId id,
                                              const Estimate& router) const;
  void leave_open_choices(op::ValueId id, Positions positions, Estimate& out);
  static void keep_worst(const std::vector<OwnError>& rows, const Matrix& value,
                         std::optional<LooksWorst>& kept);
  // `replayed`: if it was kept.
  std::optional<std::vector<OwnError>> judge_linear(op::ValueId id, Positions positions,
                                                    const Others& others,
                                                    const Matrix* replayed = nullptr);
  std::vector<int64_t> recorded_of(op::ValueId id, Positions positions) const;
  size_t rows_at_a_time(op::ValueId id, Positions positions) const;
  size_t derived_at_a_time(op::ValueId id) const;
  Matrix at_positions(const op::Op& op, Positions positions,
                      const std::function<Matrix(const op::What&)>& compute) const;
  void sample(const Evaluate& evaluate, std::span<const Estimated> inputs, Estimate& out) const;

  const Forward& forward_;
  const op::Program& program_;
  const trace::Trace& trace_;
  std::vector<int32_t> tokens_;
  std::vector<const op::Op*> producer_;  // by value
  std::vector<bool> used_;               // by value
  Arithmetic arithmetic_;
  int threads_;
  Products& products_;
  std::map<std::pair<op::ValueId, std::vector<int64_t>>, Estimated> derived_;  // kept for reuse
  int64_t derived_numbers_ = 0;
  int64_t judged_at_a_time_ = kJudgedAtATime;
  LinearNoise::Evaluated room_;  // for the next product's results
  std::map<std::pair<op::ValueId, int64_t>, bool> derived_choices_;  // by position: open or not
  bool rounding_ = true;  // false: values alone are computed
  int64_t end_ = 0;       // after the last position that is being judged
};

}  // namespace lockstep::parity
