#include "bugs.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"

namespace lockstep::engines {
namespace {

using Kind = Quirk::Kind;
using Found = std::optional<op::ValueId>;
using Make = std::function<Found(Patient&, int64_t layer, int64_t position)>;

// The value that an op goes wrong at first: attention's scores, where they are what is altered.
op::ValueId first_wrong(const op::Op& op) {
  return op.outputs.size() > 1 ? op.outputs[1] : op.outputs[0];
}

// Alters the op that computes a value.
Make on(const std::string& value, const doctor::Alteration& alteration) {
  return [=](Patient& patient, int64_t layer, int64_t) -> Found {
    const auto op = patient.find(value, layer);
    if (!op || !alteration(patient.altered, *op)) return std::nullopt;
    return first_wrong(patient.altered.op(*op));
  };
}

// Alters the projection that a value comes from.
Make at_root(const std::string& value, const doctor::Alteration& alteration) {
  return [=](Patient& patient, int64_t layer, int64_t) -> Found {
    const auto op = patient.root(value, layer);
    if (!op || !alteration(patient.altered, *op)) return std::nullopt;
    return first_wrong(patient.altered.op(*op));
  };
}

template <class Fits>
Make on_norm(const std::string& value, const doctor::Alteration& alteration, Fits fits) {
  return [=](Patient& patient, int64_t layer, int64_t position) -> Found {
    const auto op = patient.find(value, layer);
    const auto* norm = op ? std::get_if<op::Norm>(&patient.altered.op(*op).what) : nullptr;
    if (norm == nullptr || !fits(*norm)) return std::nullopt;
    return on(value, alteration)(patient, layer, position);
  };
}

Make on_layer_norm(const std::string& value, const doctor::Alteration& alteration) {
  return on_norm(value, alteration,
                 [](const op::Norm& norm) { return norm.kind == op::Norm::Kind::kLayer; });
}

// Of q, only Qwen3's is a form of something else.
Make on_head_norm(const std::string& value, const doctor::Alteration& alteration) {
  return on_norm(value, alteration, [](const op::Norm&) { return true; });
}

Make quirk(const std::string& value, Kind kind) {
  return [=](Patient& patient, int64_t layer, int64_t position) -> Found {
    const bool of_input = kind == Kind::kHalfInput || kind == Kind::kBfloatInput;
    const auto index = of_input ? patient.root(value, layer) : patient.find(value, layer);
    if (!index) return std::nullopt;
    const op::Op& op = patient.altered.op(*index);
    if (std::ranges::count(patient.quirks, op.outputs[0], &Quirk::value) > 0) return std::nullopt;
    patient.quirks.push_back({kind, op.outputs[0], position});
    return first_wrong(op);
  };
}

std::vector<int64_t> swapped_halves(int64_t count) {
  std::vector<int64_t> out;
  const int64_t half = count / 2;
  for (int64_t i = 0; i < count; ++i) out.push_back(i < 2 * half ? (i + half) % (2 * half) : i);
  return out;
}

int64_t previous(int64_t position) {
  return std::max<int64_t>(0, position - 1);
}

Make other_layer(const std::string& value) {
  return [=](Patient& patient, int64_t layer, int64_t) -> Found {
    const auto op = patient.root(value, layer);
    const auto other = patient.root(value, layer == 0 ? 1 : 0);
    if (!op || !other) return std::nullopt;
    const op::Weight* used = doctor::weight_of(patient.altered.op(*other));
    if (used == nullptr || !doctor::other_weight(op::Weight(*used))(patient.altered, *op))
      return std::nullopt;
    return first_wrong(patient.altered.op(*op));
  };
}

// Another input for an op: the value named instead of its `index`-th.
Make reads(const std::string& value, size_t index, const std::string& instead) {
  return [=](Patient& patient, int64_t layer, int64_t position) -> Found {
    const auto other = patient.find(instead, layer);
    if (!other) return std::nullopt;
    const op::ValueId id = patient.altered.op(*other).outputs[0];
    return at_root(value, doctor::reads_value(index, id))(patient, layer, position);
  };
}

Make slice(const std::string& value, const std::string& instead) {
  return [=](Patient& patient, int64_t layer, int64_t position) -> Found {
    const auto other = patient.find(instead, layer);
    const auto* slice = other ? std::get_if<op::Slice>(&patient.altered.op(*other).what) : nullptr;
    if (slice == nullptr) return std::nullopt;
    return on(value, doctor::slice_first(slice->first))(patient, layer, position);
  };
}

// Nothing changes where the window is longer than the text.
Make window(std::function<int64_t(int64_t)> other) {
  return [=](Patient& patient, int64_t layer, int64_t position) -> Found {
    return on(
        "attn_mix", doctor::attention([&](op::Attention& attention) {
          if (attention.window == 0 || attention.window >= patient.altered.program().context_length)
            return false;
          attention.window = other(attention.window);
          return true;
        }))(patient, layer, position);
  };
}

// Scores stay right.
Make without_sinks() {
  return [](Patient& patient, int64_t layer, int64_t position) -> Found {
    if (!on("attn_mix", doctor::without_sinks())(patient, layer, position)) return std::nullopt;
    return patient.altered.op(*patient.find("attn_mix", layer)).outputs[2];
  };
}

// The cache keeps the row of the position before.
Make stale_cache(doctor::CacheRows which) {
  return [=](Patient& patient, int64_t layer, int64_t position) -> Found {
    const auto wrong =
        on("attn_mix", doctor::cache_row(which, position, position - 1))(patient, layer, position);
    // A wrong value shows in the mix alone.
    if (wrong && which == doctor::kValues)
      return patient.altered.op(*patient.find("attn_mix", layer)).outputs[0];
    return wrong;
  };
}

Make stale_row(const std::string& value) {
  return [=](Patient& patient, int64_t layer, int64_t position) -> Found {
    return on(value, stale_at(position))(patient, layer, position);
  };
}

// Sums of a mixture alone: elsewhere the value is a projection.
Make without_shared_expert() {
  return [](Patient& patient, int64_t layer, int64_t position) -> Found {
    const auto op = patient.find("ffn_out", layer);
    if (!op || !std::holds_alternative<op::Add>(patient.altered.op(*op).what)) return std::nullopt;
    return on("ffn_out", doctor::passes_on(0))(patient, layer, position);
  };
}

// The bias that corrects the choice counts in the weights too.
Make biased_weights() {
  return [](Patient& patient, int64_t layer, int64_t position) -> Found {
    const auto op = patient.find("ffn_choice", layer);
    const auto* choose = op ? std::get_if<op::Choose>(&patient.altered.op(*op).what) : nullptr;
    if (choose == nullptr || !choose->bias) return std::nullopt;
    return on("ffn_weights", doctor::biased_weights(*choose->bias))(patient, layer, position);
  };
}

// Scores and masks are as they were.
Make sinks_of_next_head() {
  return [](Patient& patient, int64_t layer, int64_t position) -> Found {
    const auto next = doctor::other_sinks(
        [](size_t head, const std::vector<float>& own) { return own[(head + 1) % own.size()]; });
    if (!on("attn_mix", next)(patient, layer, position)) return std::nullopt;
    return patient.altered.op(*patient.find("attn_mix", layer)).outputs[2];
  };
}

// Only where values have a size of their own.
Make scale_of_values() {
  return on("attn_mix", doctor::attention([](op::Attention& attention) {
              attention.scale = 1 / std::sqrt(static_cast<double>(attention.value_size));
              return attention.value_size != attention.head_size;
            }));
}

std::vector<Bug> experts_and_latent_bugs() {
  const auto normalization = doctor::weigh([](op::Weigh& weigh) {
    weigh.normalize = !weigh.normalize;
    return true;
  });
  const auto scoring = doctor::weigh([](op::Weigh& weigh) {
    const bool softmax = weigh.scoring == op::Scoring::kSoftmax;
    weigh.scoring = softmax ? op::Scoring::kSigmoid : op::Scoring::kSoftmax;
    return true;
  });
  return {
      {"attention: sinks of the next head", "attention.sinks", sinks_of_next_head()},
      {"ffn_weights: other normalization", "experts.normalization",
       on("ffn_weights", normalization)},
      {"ffn_weights: other function of the router", "experts.scoring", on("ffn_weights", scoring)},
      {"ffn_weights: corrected", "experts.bias_in_weights", biased_weights()},
      {"ffn_choice: the best passed over", "experts.choice",
       on("ffn_choice", doctor::skipped_experts(1))},
      {"ffn_expert_up: the next expert's", "experts.index",
       on("ffn_expert_up", doctor::weights_of_expert(1))},
      {"ffn_out: no shared expert", "experts.shared_missing", without_shared_expert()},
      {"kv_a_norm: left out", "norm.missing", on("kv_a_norm", doctor::passes_on(0))},
      {"q_pe: the first numbers of heads", "slices.swapped",
       on("q_last", doctor::head_part_first(0))},
      {"k_pe: the first numbers of the row", "slices.swapped",
       on("k_last", doctor::slice_first(0))},
      {"k_pe: pairing", "rope.pairing", on("k_pe", doctor::other_pairing())},
      {"attention: scale of the values' size", "attention.scale", scale_of_values()},
  };
}

std::vector<Bug> make_bugs() {
  using A = op::Activate::Kind;
  const auto fewer_dims = [](op::Rope& rope) {
    rope.dims -= 2;
    if (!rope.factors.empty()) rope.factors.pop_back();
    return rope.dims > 0;
  };
  std::vector<Bug> out = {
      {"embedding: next row", "embedding.row", on("embedding", doctor::token_offset(1)), true},
      {"embedding: next token of a scaled table", "embedding.row",
       on("token_embedding", doctor::token_offset(1)), true},
      {"embedding: next position", "embedding.position",
       on("position_embedding", doctor::position_offset(1)), true},
      {"embedding: no scale", "scale.missing", on("embedding", doctor::scale_factor(1)), true},
      {"final norm: epsilon x 100", "norm.epsilon", on("final_norm", doctor::epsilon_times(100)),
       true, false, true, true},
      {"final norm: no weight", "norm.weight_missing",
       on("final_norm", doctor::norm_weight([](float) { return 1.0F; })), true},
      {"logits: wrong layout", "weight.layout",
       at_root("logits", doctor::reweigh(doctor::column_major)), true},
      {"logits: half input", "precision.operands", quirk("logits", Kind::kHalfInput), true, false,
       true},
      {"logits: no scale", "scale.missing", on("logits", doctor::scale_factor(1)), true},
      {"attn_norm: epsilon x 100", "norm.epsilon", on("attn_norm", doctor::epsilon_times(100)),
       false, false, true, true},
      {"attn_norm: epsilon / 100", "norm.epsilon", on("attn_norm", doctor::epsilon_times(0.01)),
       false, false, true, true},
      {"ffn_norm: epsilon 0", "norm.epsilon", on("ffn_norm", doctor::epsilon(0)), false, false,
       true, true},
      {"ffn_norm: no weight", "norm.weight_missing",
       on("ffn_norm", doctor::norm_weight([](float) { return 1.0F; }))},
      {"attn_norm: no bias", "bias.missing", on("attn_norm", doctor::without_norm_bias())},
      {"ffn_norm: mean not removed", "norm.kind",
       on_layer_norm("ffn_norm", doctor::other_norm_kind())},
      {"q: heads not normalized", "norm.missing", on_head_norm("q", doctor::passes_on(0))},
      {"q: epsilon of the head norm x 100", "norm.epsilon", on("q", doctor::epsilon_times(100)),
       false, false, true, true},
      {"q: wrong layout", "weight.layout", at_root("q", doctor::reweigh(doctor::column_major))},
      {"ffn_up: wrong layout", "weight.layout",
       at_root("ffn_up", doctor::reweigh(doctor::column_major))},
      {"ffn_out: wrong layout", "weight.layout",
       at_root("ffn_out", doctor::reweigh(doctor::column_major))},
      {"attn_out: swapped halves", "weight.layout",
       at_root("attn_out", doctor::input_columns(swapped_halves))},
      {"q: no bias", "bias.missing", at_root("q", doctor::bias_times(0))},
      {"k: no bias", "bias.missing", at_root("k", doctor::bias_times(0))},
      {"v: doubled bias", "bias.twice", at_root("v", doctor::bias_times(2))},
      {"attn_out: no bias", "bias.missing", at_root("attn_out", doctor::bias_times(0))},
      {"ffn_up: doubled bias", "bias.twice", at_root("ffn_up", doctor::bias_times(2))},
      {"ffn_out: no bias", "bias.missing", at_root("ffn_out", doctor::bias_times(0))},
      {"attn_norm: another layer's", "weight.other_layer", other_layer("attn_norm")},
      {"k: another layer's", "weight.other_layer", other_layer("k")},
      {"ffn_out: another layer's", "weight.other_layer", other_layer("ffn_out")},
      {"q: slice of k", "slices.swapped", slice("q", "k")},
      {"v: slice of k", "slices.swapped", slice("v", "k")},
      {"ffn_gate: slice of up", "slices.swapped", slice("ffn_gate", "ffn_up")},
      {"q_rope: base x 2", "rope.base", on("q_rope", doctor::rope_base_times(2))},
      {"k_rope: base x 1.01", "rope.base", on("k_rope", doctor::rope_base_times(1.01)), false,
       false, true},
      {"q_rope: pairing", "rope.pairing", on("q_rope", doctor::other_pairing())},
      {"k_rope: factors", "rope.factors", on("k_rope", doctor::without_factors()), false, false,
       true},
      {"q_rope: scaling", "rope.scaling", on("q_rope", doctor::without_scaling())},
      {"k_rope: fewer dims", "rope.dims", on("k_rope", doctor::rope(fewer_dims)), false, false,
       true},
      {"k_rope: none", "rope.missing", on("k_rope", doctor::without_rotation())},
      {"q_rope: next position", "rope.position", on("q_rope", doctor::position_offset(1))},
      {"attention: no scale", "attention.scale", on("attn_mix", doctor::attention_scale(1))},
      {"attention: scale x 1.001", "attention.scale",
       on("attn_mix", doctor::attention_scale_times(1.001)), false, false, true},
      {"attention: window off by one", "attention.window", window([](int64_t w) { return w + 1; })},
      {"attention: no window", "attention.window", window([](int64_t) { return 0; })},
      {"attention: window of 3 where none is", "attention.window",
       on("attn_mix", doctor::attention([](op::Attention& a) {
            const bool none = a.window == 0;
            a.window = 3;
            return none;
          }))},
      {"attention: no sinks", "attention.sinks", without_sinks()},
      {"attention: head grouping", "attention.head_map",
       on("attn_mix", doctor::interleaved_heads())},
      {"attention: sees the next", "attention.mask", on("attn_mix", doctor::sees_next())},
      {"attention: no mask", "attention.mask", on("attn_mix", doctor::no_mask())},
      {"attention: not itself", "attention.mask", on("attn_mix", doctor::not_itself())},
      {"attention: stale key", "cache.stale", stale_cache(doctor::kKeys)},
      {"attention: stale value", "cache.stale", stale_cache(doctor::kValues)},
      {"attention: half cache", "precision.cache", quirk("attn_mix", Kind::kHalfCache), false,
       false, true},
      {"ffn_act: silu", "activation.kind", on("ffn_act", doctor::activation(A::kSilu))},
      {"ffn_act: gelu", "activation.kind", on("ffn_act", doctor::activation(A::kGeluErf)), false,
       false, true},
      {"ffn_act: no gate", "activation.kind", on("ffn_act", doctor::keeps_inputs({1}))},
      {"ffn_act: swapped", "activation.inputs_swapped",
       on("ffn_act", doctor::keeps_inputs({1, 0}))},
      {"attn_residual: no residual", "residual.missing", on("attn_residual", doctor::passes_on(1))},
      {"output: no branch", "residual.missing", on("output", doctor::passes_on(0))},
      {"output: branch twice, no residual", "residual.input",
       on("output", doctor::keeps_inputs({1, 1}))},
      {"attn_residual: no scale", "scale.missing", on("attn_out_scaled", doctor::scale_factor(1))},
      {"output: no scale", "scale.missing", on("ffn_out_scaled", doctor::scale_factor(1))},
      {"output: from the normalized", "residual.input", reads("output", 0, "ffn_norm")},
      {"ffn_up: unnormalized", "norm.missing", reads("ffn_up", 0, "attn_residual")},
      {"q: bfloat input", "precision.operands", quirk("q", Kind::kBfloatInput), false, false, true},
      {"ffn_out: half input", "precision.operands", quirk("ffn_out", Kind::kHalfInput), false,
       false, true},
      {"attn_out: bfloat input", "precision.operands", quirk("attn_out", Kind::kBfloatInput), false,
       false, true},
      {"v: half input", "precision.operands", quirk("v", Kind::kHalfInput), false, false, true},
      {"ffn_norm: bfloat result", "precision.result", quirk("ffn_norm", Kind::kBfloatOutput), false,
       false, true},
      {"ffn_up: previous token's input", "row.stale",
       at_root("ffn_up", doctor::reads_rows(previous))},
      {"ffn_act: NaN", "garbage", quirk("ffn_act", Kind::kNan), false, true},
      {"v: NaN", "garbage", quirk("v", Kind::kNan), false, true},
      {"q: infinity", "garbage", quirk("q", Kind::kInfinity), false, true},
      {"attn_out: stale row", "row.stale", stale_row("attn_out"), false, true},
      {"output: stale row", "row.stale", stale_row("output"), false, true},
  };
  for (Bug& bug : experts_and_latent_bugs()) out.push_back(std::move(bug));
  return out;
}

}  // namespace

std::optional<size_t> Patient::find(const std::string& name, int64_t layer) const {
  const std::string full = layer < 0 ? name : fmt::format("blk.{}.{}", layer, name);
  const op::Program& program = altered.program();
  for (size_t i = 0; i < program.ops.size(); ++i)
    for (const op::ValueId id : program.ops[i].outputs)
      if (program.value(id).name == full) return i;
  return std::nullopt;
}

std::optional<size_t> Patient::root(const std::string& name, int64_t layer) const {
  const op::Program& program = altered.program();
  auto op = find(name, layer);
  const auto is_form = [&](const op::What& what) {
    return std::holds_alternative<op::Slice>(what) || std::holds_alternative<op::Scale>(what) ||
           (std::holds_alternative<op::Norm>(what) && (name == "q" || name == "k"));
  };
  while (op && is_form(program.ops[*op].what)) {
    const op::ValueId input = program.ops[*op].inputs[0];
    for (size_t i = 0; i < program.ops.size(); ++i)
      if (program.ops[i].outputs[0] == input) op = i;
  }
  return op;
}

Patient altered(const op::Program& program, const std::string& value,
                const doctor::Alteration& alteration) {
  Patient patient(program);
  LS_CHECK(alteration(patient.altered, *patient.find(value, -1)));
  return patient;
}

doctor::Alteration stale_at(int64_t position) {
  return doctor::result_of([=](int64_t at) { return at == position ? previous(at) : at; });
}

std::span<const Bug> bugs() {
  static const std::vector<Bug> kBugs = make_bugs();
  return kBugs;
}

}  // namespace lockstep::engines
