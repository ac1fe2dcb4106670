#include "bugs.h"

#include <algorithm>

#include <fmt/format.h>

#include "quant/decode.h"

namespace lockstep::engines {
namespace {

using Kind = Quirk::Kind;
using Found = std::optional<op::ValueId>;
using Make = std::function<Found(Patient&, int64_t, int64_t)>;

std::vector<float> decode(const op::Weight& weight) {
  std::vector<float> out(static_cast<size_t>(weight.rows * weight.columns));
  for (int64_t r = 0; r < weight.rows; ++r)
    quant::decode(weight.format->format(), weight.row(r), weight.columns,
                  out.data() + r * weight.columns);
  return out;
}

Found first_output(const op::Op* op) {
  return op != nullptr ? Found(op->outputs[0]) : std::nullopt;
}

// Changes the op of kind What that computes a value; `change` tells whether it could.
template <class What>
Make change(const std::string& value, std::function<bool(What&, Patient&, int64_t)> how) {
  return [=](Patient& patient, int64_t layer, int64_t) -> Found {
    op::Op* op =
        std::is_same_v<What, op::Linear> ? patient.root(value, layer) : patient.find(value, layer);
    if (op == nullptr || !std::holds_alternative<What>(op->what)) return std::nullopt;
    if (!how(std::get<What>(op->what), patient, layer)) return std::nullopt;
    return first_output(op);
  };
}

Make quirk(const std::string& value, Kind kind) {
  return [=](Patient& patient, int64_t layer, int64_t position) -> Found {
    op::Op* op = patient.find(value, layer);
    const bool of_input = kind == Kind::kHalfInput || kind == Kind::kBfloatInput;
    if (of_input) op = patient.root(value, layer);
    if (op == nullptr) return std::nullopt;
    const auto* attention = std::get_if<op::Attention>(&op->what);
    if (kind == Kind::kInterleaved &&
        (attention->heads == attention->kv_heads || attention->kv_heads == 1))
      return std::nullopt;
    patient.quirk = {kind, op->outputs[0], position};
    // Attention goes wrong from its scores on; a wrong value shows in the mix.
    if (attention != nullptr && kind != Kind::kStaleValue) return op->outputs[1];
    return first_output(op);
  };
}

// Another weight for a projection, from its own numbers.
Make reweigh(const std::string& value,
             std::function<std::vector<float>(const std::vector<float>&, const op::Weight&)> how) {
  return change<op::Linear>(value, [how](op::Linear& linear, Patient& patient, int64_t) {
    const op::Weight old = linear.weight;
    linear.weight = patient.keep(old, how(decode(old), old), old.rows, old.columns);
    return true;
  });
}

// Rows of `rows` numbers read where there are rows of `columns`: the wrong leading dimension.
std::vector<float> wrong_layout(const std::vector<float>& values, const op::Weight& weight) {
  std::vector<float> out(values.size());
  for (int64_t r = 0; r < weight.rows; ++r)
    for (int64_t c = 0; c < weight.columns; ++c)
      out[static_cast<size_t>(r * weight.columns + c)] =
          values[static_cast<size_t>(c * weight.rows + r)];
  return out;
}

std::vector<float> swapped_halves(const std::vector<float>& values, const op::Weight& weight) {
  std::vector<float> out(values.size());
  const int64_t half = weight.columns / 2;
  for (int64_t r = 0; r < weight.rows; ++r)
    for (int64_t c = 0; c < 2 * half; ++c)
      out[static_cast<size_t>(r * weight.columns + (c + half) % (2 * half))] =
          values[static_cast<size_t>(r * weight.columns + c)];
  return out;
}

Make bias(const std::string& value, float factor) {
  return change<op::Linear>(value, [factor](op::Linear& linear, Patient& patient, int64_t) {
    if (!linear.bias) return false;
    std::vector<float> values = decode(*linear.bias);
    for (float& v : values) v *= factor;
    linear.bias = patient.keep(*linear.bias, std::move(values), 1, linear.bias->columns);
    return true;
  });
}

Make other_layer(const std::string& value) {
  return [=](Patient& patient, int64_t layer, int64_t) -> Found {
    op::Op* op = patient.root(value, layer);
    const op::Op* other = patient.root(value, layer == 0 ? 1 : 0);
    if (op == nullptr || other == nullptr) return std::nullopt;
    if (auto* linear = std::get_if<op::Linear>(&op->what))
      linear->weight = std::get<op::Linear>(other->what).weight;
    else
      std::get<op::Norm>(op->what).weight = std::get<op::Norm>(other->what).weight;
    return first_output(op);
  };
}

Make epsilon(const std::string& value, double factor) {
  return change<op::Norm>(value, [factor](op::Norm& norm, Patient&, int64_t) {
    norm.epsilon *= factor;
    return true;
  });
}

Make rope(const std::string& value, std::function<bool(op::Rope&)> how) {
  return change<op::Rope>(value, [how](op::Rope& rope, Patient&, int64_t) { return how(rope); });
}

Make attention(std::function<bool(op::Attention&)> how) {
  return [=](Patient& patient, int64_t layer, int64_t) -> Found {
    op::Op* op = patient.find("attn_mix", layer);
    if (!how(std::get<op::Attention>(op->what))) return std::nullopt;
    return op->outputs[1];
  };
}

// Another input for an op: the value named instead of its `index`-th.
Make reads(const std::string& value, size_t index, const std::string& instead) {
  return [=](Patient& patient, int64_t layer, int64_t) -> Found {
    op::Op* op = patient.root(value, layer);
    const op::Op* other = patient.find(instead, layer);
    if (op == nullptr || other == nullptr || op->inputs.size() <= index) return std::nullopt;
    op->inputs[index] = other->outputs[0];
    return first_output(op);
  };
}

Make becomes(const std::string& value, const op::What& what, std::vector<size_t> kept) {
  return [=](Patient& patient, int64_t layer, int64_t) -> Found {
    op::Op* op = patient.find(value, layer);
    if (op == nullptr || op->inputs.size() <= *std::max_element(kept.begin(), kept.end()))
      return std::nullopt;
    // Of q, only Qwen3's is a form of something else.
    if (value == "q" && !std::holds_alternative<op::Norm>(op->what)) return std::nullopt;
    op->what = what;
    std::vector<op::ValueId> inputs;
    for (const size_t i : kept) inputs.push_back(op->inputs[i]);
    op->inputs = inputs;
    return first_output(op);
  };
}

// The factor of a Scale op: of the value itself, or before its addition.
Make scale(const std::string& value, double factor) {
  return change<op::Scale>(value, [factor](op::Scale& scale, Patient&, int64_t) {
    scale.factor = factor;
    return true;
  });
}

Make slice(const std::string& value, const std::string& instead) {
  return [=](Patient& patient, int64_t layer, int64_t) -> Found {
    op::Op* op = patient.find(value, layer);
    const op::Op* other = patient.find(instead, layer);
    auto* own = op != nullptr ? std::get_if<op::Slice>(&op->what) : nullptr;
    if (own == nullptr || patient.program.value(other->outputs[0]).width <
                              patient.program.value(op->outputs[0]).width)
      return std::nullopt;
    own->first = std::get<op::Slice>(other->what).first;
    return first_output(op);
  };
}

// Rows of an embedding table, one too far.
Make next_row(const std::string& value) {
  return change<op::Embed>(value, [](op::Embed& embed, Patient& patient, int64_t) {
    std::vector<float> values = decode(embed.table);
    std::rotate(values.begin(), values.begin() + embed.table.columns, values.end());
    embed.table =
        patient.keep(embed.table, std::move(values), embed.table.rows, embed.table.columns);
    return true;
  });
}

Make norm(const std::string& value, std::function<bool(op::Norm&, Patient&)> how) {
  return change<op::Norm>(
      value, [how](op::Norm& norm, Patient& patient, int64_t) { return how(norm, patient); });
}

bool without_weight(op::Norm& norm, Patient& patient) {
  norm.weight = patient.keep(norm.weight, std::vector<float>(static_cast<size_t>(norm.group), 1.0F),
                             1, norm.group);
  return true;
}

bool without_bias(op::Norm& norm, Patient&) {
  const bool had = norm.bias.has_value();
  norm.bias.reset();
  return had;
}

bool without_mean(op::Norm& norm, Patient&) {
  const bool layer = norm.kind == op::Norm::Kind::kLayer;
  norm.kind = op::Norm::Kind::kRms;
  return layer;
}

Make activation(op::Activate::Kind kind) {
  return change<op::Activate>("ffn_act", [kind](op::Activate& activate, Patient&, int64_t) {
    const bool other = activate.kind != kind;
    activate.kind = kind;
    return other;
  });
}

// Nothing changes where the window is longer than the text.
Make window(std::function<int64_t(int64_t)> other) {
  return [=](Patient& patient, int64_t layer, int64_t) -> Found {
    op::Op* op = patient.find("attn_mix", layer);
    auto& attention = std::get<op::Attention>(op->what);
    if (attention.window == 0 || attention.window >= patient.program.context_length)
      return std::nullopt;
    attention.window = other(attention.window);
    return op->outputs[1];
  };
}

std::vector<Bug> make_bugs() {
  using A = op::Activate::Kind;
  const auto pairing = [](op::Rope& rope) {
    using Pairing = op::Rope::Pairing;
    rope.pairing = rope.pairing == Pairing::kHalves ? Pairing::kAdjacent : Pairing::kHalves;
    return rope.dims > 2;
  };
  const auto base = [](double factor) {
    return [factor](op::Rope& rope) {
      rope.base *= factor;
      return true;
    };
  };
  const auto no_factors = [](op::Rope& rope) {
    const bool had = !rope.factors.empty();
    rope.factors.clear();
    return had;
  };
  const auto no_scaling = [](op::Rope& rope) {
    const bool had = rope.position_scale != 1 || rope.yarn.has_value();
    rope.position_scale = 1;
    return had;
  };
  const auto fewer_dims = [](op::Rope& rope) {
    rope.dims -= 2;
    if (!rope.factors.empty()) rope.factors.pop_back();
    return rope.dims > 0;
  };
  const auto no_rotation = [](op::Rope& rope) {
    rope.dims = 0;
    rope.factors.clear();
    return true;
  };
  const auto times = [](double factor) {
    return [factor](op::Attention& a) {
      a.scale *= factor;
      return true;
    };
  };
  std::vector<Bug> out = {
      {"embedding: next row", next_row("embedding"), true},
      {"embedding: next token of a scaled table", next_row("token_embedding"), true},
      {"embedding: next position", next_row("position_embedding"), true},
      {"embedding: no scale", scale("embedding", 1), true},
      {"final norm: epsilon x 100", epsilon("final_norm", 100), true, false, true, true},
      {"final norm: no weight", norm("final_norm", without_weight), true},
      {"logits: wrong layout", reweigh("logits", wrong_layout), true},
      {"logits: half input", quirk("logits", Kind::kHalfInput), true, false, true},
      {"logits: no scale", scale("logits", 1), true},
      {"attn_norm: epsilon x 100", epsilon("attn_norm", 100), false, false, true, true},
      {"attn_norm: epsilon / 100", epsilon("attn_norm", 0.01), false, false, true, true},
      {"ffn_norm: epsilon 0", epsilon("ffn_norm", 0), false, false, true, true},
      {"ffn_norm: no weight", norm("ffn_norm", without_weight)},
      {"attn_norm: no bias", norm("attn_norm", without_bias)},
      {"ffn_norm: mean not removed", norm("ffn_norm", without_mean)},
      {"q: heads not normalized", becomes("q", op::Slice{0}, {0})},
      {"q: epsilon of the head norm x 100", epsilon("q", 100), false, false, true, true},
      {"q: wrong layout", reweigh("q", wrong_layout)},
      {"ffn_up: wrong layout", reweigh("ffn_up", wrong_layout)},
      {"ffn_out: wrong layout", reweigh("ffn_out", wrong_layout)},
      {"attn_out: swapped halves", reweigh("attn_out", swapped_halves)},
      {"q: no bias", bias("q", 0)},
      {"k: no bias", bias("k", 0)},
      {"v: doubled bias", bias("v", 2)},
      {"attn_out: no bias", bias("attn_out", 0)},
      {"ffn_up: doubled bias", bias("ffn_up", 2)},
      {"ffn_out: no bias", bias("ffn_out", 0)},
      {"attn_norm: another layer's", other_layer("attn_norm")},
      {"k: another layer's", other_layer("k")},
      {"ffn_out: another layer's", other_layer("ffn_out")},
      {"q: slice of k", slice("q", "k")},
      {"v: slice of k", slice("v", "k")},
      {"ffn_gate: slice of up", slice("ffn_gate", "ffn_up")},
      {"q_rope: base x 2", rope("q_rope", base(2))},
      {"k_rope: base x 1.01", rope("k_rope", base(1.01)), false, false, true},
      {"q_rope: pairing", rope("q_rope", pairing)},
      {"k_rope: factors", rope("k_rope", no_factors), false, false, true},
      {"q_rope: scaling", rope("q_rope", no_scaling)},
      {"k_rope: fewer dims", rope("k_rope", fewer_dims), false, false, true},
      {"k_rope: none", rope("k_rope", no_rotation)},
      {"q_rope: next position", quirk("q_rope", Kind::kNextPosition)},
      {"attention: no scale", attention([](op::Attention& a) {
         const bool had = a.scale != 1;
         a.scale = 1;
         return had;
       })},
      {"attention: scale x 1.001", attention(times(1.001)), false, false, true},
      {"attention: window off by one", window([](int64_t w) { return w + 1; })},
      {"attention: no window", window([](int64_t) { return 0; })},
      {"attention: window of 3 where none is", attention([](op::Attention& a) {
         const bool none = a.window == 0;
         a.window = 3;
         return none;
       })},
      {"attention: head grouping", quirk("attn_mix", Kind::kInterleaved)},
      {"attention: sees the next", quirk("attn_mix", Kind::kSeesNext)},
      {"attention: no mask", quirk("attn_mix", Kind::kNoMask)},
      {"attention: not itself", quirk("attn_mix", Kind::kNotItself)},
      {"attention: stale key", quirk("attn_mix", Kind::kStaleKey)},
      {"attention: stale value", quirk("attn_mix", Kind::kStaleValue)},
      {"attention: half cache", quirk("attn_mix", Kind::kHalfCache), false, false, true},
      {"ffn_act: silu", activation(A::kSilu)},
      {"ffn_act: gelu", activation(A::kGeluErf), false, false, true},
      {"ffn_act: no gate", becomes("ffn_act", op::Activate{A::kSilu}, {1})},
      {"ffn_act: swapped", becomes("ffn_act", op::Activate{A::kSilu}, {1, 0})},
      {"attn_residual: no residual", becomes("attn_residual", op::Slice{0}, {1})},
      {"output: no branch", becomes("output", op::Slice{0}, {0})},
      {"output: branch twice, no residual", becomes("output", op::Add{}, {1, 1})},
      {"attn_residual: no scale", scale("attn_out_scaled", 1)},
      {"output: no scale", scale("ffn_out_scaled", 1)},
      {"output: from the normalized", reads("output", 0, "ffn_norm")},
      {"ffn_up: unnormalized", reads("ffn_up", 0, "attn_residual")},
      {"q: bfloat input", quirk("q", Kind::kBfloatInput), false, false, true},
      {"ffn_out: half input", quirk("ffn_out", Kind::kHalfInput), false, false, true},
      {"attn_out: bfloat input", quirk("attn_out", Kind::kBfloatInput), false, false, true},
      {"v: half input", quirk("v", Kind::kHalfInput), false, false, true},
      {"ffn_norm: bfloat result", quirk("ffn_norm", Kind::kBfloatOutput), false, false, true},
      {"ffn_up: previous token's input", quirk("ffn_up", Kind::kStaleInput)},
      {"ffn_act: NaN", quirk("ffn_act", Kind::kNan), false, true},
      {"v: NaN", quirk("v", Kind::kNan), false, true},
      {"q: infinity", quirk("q", Kind::kInfinity), false, true},
      {"attn_out: stale row", quirk("attn_out", Kind::kStaleRow), false, true},
      {"output: stale row", quirk("output", Kind::kStaleRow), false, true},
  };
  return out;
}

}  // namespace

op::Op* Patient::find(const std::string& name, int64_t layer) {
  const std::string full = layer < 0 ? name : fmt::format("blk.{}.{}", layer, name);
  for (op::Op& op : program.ops)
    for (const op::ValueId id : op.outputs)
      if (program.value(id).name == full) return &op;
  return nullptr;
}

op::Op* Patient::root(const std::string& name, int64_t layer) {
  op::Op* op = find(name, layer);
  const auto is_form = [&] {
    return std::holds_alternative<op::Slice>(op->what) ||
           std::holds_alternative<op::Scale>(op->what) ||
           (std::holds_alternative<op::Norm>(op->what) && (name == "q" || name == "k"));
  };
  while (op != nullptr && is_form()) {
    const op::ValueId input = op->inputs[0];
    for (op::Op& other : program.ops)
      if (other.outputs[0] == input) op = &other;
  }
  return op;
}

op::Weight Patient::keep(const op::Weight& like, std::vector<float> values, int64_t rows,
                         int64_t columns) {
  weights.push_back(std::move(values));
  op::Weight out = like;
  out.format = &quant::info(quant::Format::kF32);
  out.rows = rows;
  out.columns = columns;
  out.data = std::as_bytes(std::span(weights.back()));
  return out;
}

std::span<const Bug> bugs() {
  static const std::vector<Bug> kBugs = make_bugs();
  return kBugs;
}

}  // namespace lockstep::engines
