// What engines get wrong, as changes of a forward pass: one op, its weight, its inputs, or the rows
// that it reads. The doctor makes them to see whether they explain a trace; tests make them to have
// engines with bugs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "op/program.h"
#include "parity/forward.h"

namespace lockstep::doctor {

// A forward pass that was altered. It owns the weights that exist only in it; copies share them.
class Altered {
 public:
  explicit Altered(parity::Forward forward) : forward_(std::move(forward)) {}
  explicit Altered(op::Program program) { forward_.program = std::move(program); }

  const parity::Forward& forward() const { return forward_; }
  op::Program& program() { return forward_.program; }
  const op::Program& program() const { return forward_.program; }
  op::Op& op(size_t index) { return forward_.program.ops[index]; }
  op::Deviation& deviation(size_t op) { return forward_.deviations[op]; }

  // Calls `change` with the op's own kind, in each program of the forward pass. False: the op is of
  // another kind, or `change` could not.
  template <class What>
  bool change(size_t index, const std::function<bool(What&)>& change) {
    auto* what = std::get_if<What>(&op(index).what);
    if (what == nullptr || !change(*what)) return false;
    if (forward_.early)
      if (auto* early = std::get_if<What>(&forward_.early->ops[index].what)) change(*early);
    return true;
  }
  // The op becomes another, with some of its inputs.
  void replace(size_t index, const op::What& what, std::vector<op::ValueId> inputs);

  // A weight in place of `like`, with these numbers: [rows, columns] of `like`.
  op::Weight keep(const op::Weight& like, std::vector<float> numbers);

 private:
  parity::Forward forward_;
  std::vector<std::shared_ptr<const std::vector<float>>> weights_;
};

// Alters the op of this index. False: there is nothing to alter, as of a bias that the op has not.
using Alteration = std::function<bool(Altered&, size_t op)>;

std::vector<float> decode(const op::Weight& weight);

// Weights of Linear, Embed (its table) and Norm.
op::Weight* weight_of(op::Op& op);
const op::Weight* weight_of(const op::Op& op);
using NewNumbers = std::function<std::vector<float>(const op::Weight&)>;
Alteration reweigh(NewNumbers how);               // other numbers of the same shape
Alteration other_weight(const op::Weight& used);  // another tensor's; of the same shape only
std::vector<float> column_major(const op::Weight& weight);  // read with the wrong leading dimension
Alteration bias_times(float factor);                        // 0: left out
// Columns of the first input, or of the result, from other places (op/deviation.h); rows or columns
// of a weight that are permuted or left out are the same thing.
using Columns = std::function<std::vector<int64_t>(int64_t count)>;
Alteration input_columns(Columns columns);
Alteration output_columns(Columns columns);

// Embed
Alteration token_offset(int32_t offset);
Alteration position_offset(int64_t offset);  // Rope's too

// Norm
Alteration epsilon(double value);
Alteration epsilon_times(double factor);
Alteration norm_weight(std::function<float(float)> other);  // of each of its numbers
Alteration without_norm_bias();
Alteration other_norm_kind();
Alteration norm_group(std::function<int64_t(int64_t group, int64_t width)> group);
// What a norm knows of the group of numbers that one of them belongs to.
struct NormGroup {
  double count = 0;
  double mean = 0;
  double squares = 0;   // mean of them
  double variance = 0;  // mean of the squares without the mean
  double epsilon = 0;
};
// Each number of the result by another formula, and the formula in words.
using NormFormula =
    std::function<double(const NormGroup& group, double x, double weight, double bias)>;
Alteration norm_formula(NormFormula formula, std::string words);

Alteration slice_first(int64_t first);
Alteration head_part_first(int64_t first);  // HeadParts

// Rope
Alteration rope(std::function<bool(op::Rope&)> how);
Alteration rope_base(double value);
Alteration rope_base_times(double factor);
Alteration other_pairing();
Alteration without_rotation();
Alteration rope_dims(int64_t dims);
Alteration without_scaling();
Alteration without_factors();
// Another formula for the two numbers of a pair, x cos - y sin and x sin + y cos as it should be.
using PairFormula =
    std::function<std::pair<double, double>(double x, double y, double cosine, double sine)>;
Alteration rope_formula(PairFormula formula, std::string words);
Alteration other_frequencies();  // pairs as they should be, angles as the other pairing has them
Alteration rotates_last();       // numbers of a head, not its first ones
// Angles, or their cosines and sines, as another function leaves them.
Alteration changed_angles(std::function<double(double)> angle, std::function<double(double)> part);
Alteration rotates_heads(int64_t count);                          // only the first heads
Alteration counted_as(std::function<int64_t(int64_t)> position);  // by Rope and tables of positions

// Attention
Alteration attention(std::function<bool(op::Attention&)> how);
Alteration attention_scale(double value);
Alteration attention_scale_times(double factor);
Alteration window(int64_t value);
Alteration soft_cap(double value);
Alteration without_sinks();
// Sinks altered by head: sink(head, own numbers).
Alteration other_sinks(std::function<double(size_t head, const std::vector<float>& own)> sink);
Alteration kv_head(std::function<int64_t(const op::Attention&, int64_t head)> map);
Alteration interleaved_heads();  // query head h reads key head h mod kv_heads
using Sees = std::function<bool(const op::Attention&, int64_t position, int64_t key)>;
Alteration sees(Sees sees);
Alteration hidden_as(double score);  // keys out of sight have this score
Alteration sees_next();
Alteration not_itself();  // but for the first
Alteration no_mask();
enum CacheRows { kKeys = 1, kValues = 2, kKeysAndValues = 3 };
// The cache has another position's row, or zeros, where `position` should be.
Alteration cache_row(CacheRows which, int64_t position, int64_t other);

// Activate
Alteration activation(op::Activate::Kind kind);
Alteration activation_function(std::function<double(double)> function);
// Of gate and up.
Alteration gated_formula(std::function<double(op::Activate::Kind, double gate, double up)> formula,
                         std::string words);
Alteration limited(double limit);

Alteration scale_factor(double factor);  // Scale
Alteration logit_cap(double value);      // SoftCap

// Mixtures of experts
Alteration choose(std::function<bool(op::Choose&)> how);
Alteration skipped_experts(int64_t count);  // the best are passed over
Alteration expert_numbers(int64_t offset);  // of the choice
Alteration worst_experts();                 // those with the least scores
Alteration weigh(std::function<bool(op::Weigh&)> how);
Alteration biased_weights(const op::Weight& bias);  // the bias of the choice counts in them too
// What each slot counts by another formula, from the router's numbers of the chosen experts and the
// right weights; and that in words.
using SlotWeights = std::function<double(size_t slot, std::span<const double> router,
                                         std::span<const double> weights)>;
Alteration slot_weights(SlotWeights formula, std::string words);
// MixExperts: another sum, by what a slot counts in it.
Alteration slot_sum(std::function<double(size_t slot, std::span<const double> weights)> share,
                    std::string words);
Alteration other_expert_weight(const op::Weight& used);  // ExpertLinear's; of the same shape only
Alteration weights_of_expert(int64_t offset);            // ExpertLinear's, of another expert

Alteration scaled_sum();  // Add: the factor of the second input is applied to the sum
Alteration weighted_sum(double first, double second);  // Add: of its two inputs

// Any op
Alteration passes_on(size_t input);                       // its result is one of its inputs
Alteration keeps_inputs(std::vector<size_t> inputs);      // these of its inputs, in this order
Alteration reads_value(size_t input, op::ValueId value);  // in place of the input
Alteration reads_rows(std::function<int64_t(int64_t position)> other);  // of all its inputs
Alteration result_of(std::function<int64_t(int64_t position)> other);
Alteration times(double factor);  // its result
// The whole row of its result becomes another, and that in words.
Alteration then(std::function<void(std::span<double> row)> what, std::string words);

}  // namespace lockstep::doctor
