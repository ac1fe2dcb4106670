#include "doctor/alterations.h"

#include <algorithm>
#include <cmath>

#include "quant/decode.h"

namespace lockstep::doctor {
namespace {

// Weights larger than this are not made anew: 1 GiB.
constexpr int64_t kLargest = int64_t{1} << 28;

}  // namespace

void Altered::replace(size_t index, const op::What& what, std::vector<op::ValueId> inputs) {
  op::Op& here = op(index);
  // The formula of an op is not that of another.
  if (const auto own = forward_.deviations.find(index);
      own != forward_.deviations.end() &&
      (here.what.index() != what.index() || here.inputs.size() != inputs.size()))
    own->second.row = nullptr;
  here.what = what;
  here.inputs = inputs;
  if (!forward_.early) return;
  forward_.early->ops[index].what = what;
  forward_.early->ops[index].inputs = std::move(inputs);
}

op::Weight Altered::keep(const op::Weight& like, std::vector<float> numbers) {
  LS_CHECK(std::ssize(numbers) == like.rows * like.columns);
  weights_.push_back(std::make_shared<const std::vector<float>>(std::move(numbers)));
  op::Weight out = like;
  out.format = &quant::info(quant::Format::kF32);
  out.engine_format = &like.format_in_engine();
  out.data = std::as_bytes(std::span(*weights_.back()));
  out.mapped = false;
  return out;
}

std::vector<float> decode(const op::Weight& weight) {
  std::vector<float> out(static_cast<size_t>(weight.rows * weight.columns));
  for (int64_t r = 0; r < weight.rows; ++r)
    quant::decode(weight.format->format(), weight.row(r), weight.columns,
                  out.data() + r * weight.columns);
  return out;
}

op::Weight* weight_of(op::Op& op) {
  if (auto* linear = std::get_if<op::Linear>(&op.what)) return &linear->weight;
  if (auto* embed = std::get_if<op::Embed>(&op.what)) return &embed->table;
  if (auto* norm = std::get_if<op::Norm>(&op.what)) return &norm->weight;
  return nullptr;
}

const op::Weight* weight_of(const op::Op& op) {
  return weight_of(const_cast<op::Op&>(op));
}

Alteration reweigh(NewNumbers how) {
  return [how = std::move(how)](Altered& altered, size_t op) {
    op::Weight* weight = weight_of(altered.op(op));
    if (weight == nullptr || weight->rows * weight->columns > kLargest) return false;
    *weight = altered.keep(*weight, how(*weight));
    return true;
  };
}

Alteration other_weight(const op::Weight& used) {
  return [used](Altered& altered, size_t op) {
    op::Weight* weight = weight_of(altered.op(op));
    if (weight == nullptr || weight->rows != used.rows || weight->columns != used.columns ||
        weight->data.data() == used.data.data())
      return false;
    *weight = used;
    return true;
  };
}

std::vector<float> column_major(const op::Weight& weight) {
  const std::vector<float> numbers = decode(weight);
  std::vector<float> out(numbers.size());
  for (int64_t r = 0; r < weight.rows; ++r)
    for (int64_t c = 0; c < weight.columns; ++c)
      out[static_cast<size_t>(r * weight.columns + c)] =
          numbers[static_cast<size_t>(c * weight.rows + r)];
  return out;
}

Alteration bias_times(float factor) {
  return [factor](Altered& altered, size_t op) {
    auto* linear = std::get_if<op::Linear>(&altered.op(op).what);
    if (linear == nullptr || !linear->bias) return false;
    std::vector<float> numbers = decode(*linear->bias);
    for (float& number : numbers) number *= factor;
    linear->bias = altered.keep(*linear->bias, std::move(numbers));
    return true;
  };
}

Alteration input_columns(Columns columns) {
  return [columns = std::move(columns)](Altered& altered, size_t op) {
    const op::Op& what = altered.op(op);
    if (what.inputs.empty() || std::holds_alternative<op::Attention>(what.what)) return false;
    auto taken = columns(altered.program().value(what.inputs[0]).width);
    if (taken.empty()) return false;
    altered.deviation(op).input_columns = std::move(taken);
    return true;
  };
}

Alteration output_columns(Columns columns) {
  return [columns = std::move(columns)](Altered& altered, size_t op) {
    auto taken = columns(altered.program().value(altered.op(op).outputs[0]).width);
    if (taken.empty()) return false;
    altered.deviation(op).columns = std::move(taken);
    return true;
  };
}

Alteration token_offset(int32_t offset) {
  return [offset](Altered& altered, size_t op) {
    const auto* embed = std::get_if<op::Embed>(&altered.op(op).what);
    if (embed == nullptr || embed->index != op::Embed::Index::kToken) return false;
    altered.deviation(op).token_offset = offset;
    return true;
  };
}

Alteration position_offset(int64_t offset) {
  return counted_as([offset](int64_t position) { return position + offset; });
}

Alteration epsilon(double value) {
  return [value](Altered& altered, size_t op) {
    return altered.change<op::Norm>(op, [&](op::Norm& norm) {
      norm.epsilon = value;
      return true;
    });
  };
}

Alteration epsilon_times(double factor) {
  return [factor](Altered& altered, size_t op) {
    return altered.change<op::Norm>(op, [&](op::Norm& norm) {
      norm.epsilon *= factor;
      return true;
    });
  };
}

Alteration norm_weight(std::function<float(float)> other) {
  return [other = std::move(other)](Altered& altered, size_t op) {
    auto* norm = std::get_if<op::Norm>(&altered.op(op).what);
    if (norm == nullptr) return false;
    std::vector<float> numbers = decode(norm->weight);
    for (float& number : numbers) number = other(number);
    norm->weight = altered.keep(norm->weight, std::move(numbers));
    return true;
  };
}

Alteration without_norm_bias() {
  return [](Altered& altered, size_t op) {
    return altered.change<op::Norm>(op, [](op::Norm& norm) {
      const bool had = norm.bias.has_value();
      norm.bias.reset();
      return had;
    });
  };
}

Alteration other_norm_kind() {
  return [](Altered& altered, size_t op) {
    return altered.change<op::Norm>(op, [](op::Norm& norm) {
      using Kind = op::Norm::Kind;
      norm.kind = norm.kind == Kind::kLayer ? Kind::kRms : Kind::kLayer;
      return true;
    });
  };
}

Alteration norm_group(std::function<int64_t(int64_t group, int64_t width)> group) {
  return [group = std::move(group)](Altered& altered, size_t op) {
    const int64_t width = altered.program().value(altered.op(op).outputs[0]).width;
    auto* norm = std::get_if<op::Norm>(&altered.op(op).what);
    if (norm == nullptr || norm->bias) return false;
    const int64_t old = norm->group;
    const int64_t next = group(old, width);
    if (next == old || next <= 0 || width % next != 0) return false;
    // The weight stays what it is for each number of the row.
    std::vector<float> numbers = decode(norm->weight);
    std::vector<float> longer(static_cast<size_t>(next));
    for (size_t i = 0; i < longer.size(); ++i) longer[i] = numbers[i % numbers.size()];
    op::Weight like = norm->weight;
    like.columns = next;
    norm->weight = altered.keep(like, std::move(longer));
    norm->group = next;
    return true;
  };
}

Alteration head_part_first(int64_t first) {
  return [first](Altered& altered, size_t op) {
    const op::ValueId input = altered.op(op).inputs[0];
    const int64_t width = altered.program().value(input).width;
    return altered.change<op::HeadParts>(op, [&](op::HeadParts& own) {
      if (own.first == first || first < 0 || first + own.width > width / own.heads) return false;
      own.first = first;
      return true;
    });
  };
}

Alteration slice_first(int64_t first) {
  return [first](Altered& altered, size_t op) {
    const op::Op& here = altered.op(op);
    const auto* slice = std::get_if<op::Slice>(&here.what);
    const auto width = [&](op::ValueId id) { return altered.program().value(id).width; };
    if (slice == nullptr || slice->first == first || first < 0 ||
        first + width(here.outputs[0]) > width(here.inputs[0]))
      return false;
    return altered.change<op::Slice>(op, [&](op::Slice& own) {
      own.first = first;
      return true;
    });
  };
}

Alteration activation(op::Activate::Kind kind) {
  return [kind](Altered& altered, size_t op) {
    return altered.change<op::Activate>(op, [&](op::Activate& activate) {
      const bool other = activate.kind != kind;
      activate.kind = kind;
      return other;
    });
  };
}

Alteration limited(double limit) {
  return [limit](Altered& altered, size_t op) {
    altered.deviation(op).limit = limit;
    return true;
  };
}

Alteration scale_factor(double factor) {
  return [factor](Altered& altered, size_t op) {
    return altered.change<op::Scale>(op, [&](op::Scale& scale) {
      const bool other = scale.factor != factor;
      scale.factor = factor;
      return other;
    });
  };
}

Alteration logit_cap(double value) {
  return [value](Altered& altered, size_t op) {
    return altered.change<op::SoftCap>(op, [&](op::SoftCap& soft) {
      const bool other = soft.cap != value;
      soft.cap = value;
      return other;
    });
  };
}

Alteration passes_on(size_t input) {
  return [input](Altered& altered, size_t op) {
    const op::Op& here = altered.op(op);
    if (input >= here.inputs.size() || std::holds_alternative<op::Slice>(here.what)) return false;
    const op::ValueId passed = here.inputs[input];
    if (altered.program().value(passed).width != altered.program().value(here.outputs[0]).width)
      return false;
    altered.replace(op, op::Slice{0}, {passed});
    return true;
  };
}

Alteration keeps_inputs(std::vector<size_t> inputs) {
  return [inputs = std::move(inputs)](Altered& altered, size_t op) {
    const op::Op here = altered.op(op);
    std::vector<op::ValueId> kept;
    for (const size_t input : inputs) {
      if (input >= here.inputs.size()) return false;
      kept.push_back(here.inputs[input]);
    }
    if (kept == here.inputs) return false;
    altered.replace(op, here.what, std::move(kept));
    return true;
  };
}

Alteration reads_value(size_t input, op::ValueId value) {
  return [=](Altered& altered, size_t op) {
    const op::Op here = altered.op(op);
    const auto width = [&](op::ValueId id) { return altered.program().value(id).width; };
    if (input >= here.inputs.size() || here.inputs[input] == value ||
        width(here.inputs[input]) != width(value))
      return false;
    std::vector<op::ValueId> inputs = here.inputs;
    inputs[input] = value;
    altered.replace(op, here.what, std::move(inputs));
    return true;
  };
}

Alteration reads_rows(std::function<int64_t(int64_t position)> other) {
  return [other = std::move(other)](Altered& altered, size_t op) {
    op::Deviation& deviation = altered.deviation(op);
    deviation.reads = [other](size_t, int64_t position) { return other(position); };
    return true;
  };
}

Alteration result_of(std::function<int64_t(int64_t position)> other) {
  return [other = std::move(other)](Altered& altered, size_t op) {
    altered.deviation(op).result_of = other;
    return true;
  };
}

Alteration times(double factor) {
  return [factor](Altered& altered, size_t op) {
    altered.deviation(op).factor = factor;
    return true;
  };
}

}  // namespace lockstep::doctor
