// Hypotheses on weights: another tensor, another layout, a part left out, another order.
#include <algorithm>
#include <numeric>
#include <set>

#include "doctor/hypothesis.h"

namespace lockstep::doctor {
namespace {

// "attn_q.weight" of "blk.3.attn_q.weight"; the whole name of a tensor outside the layers.
std::string role_of(const std::string& tensor) {
  if (!tensor.starts_with("blk.")) return tensor;
  const size_t dot = tensor.find('.', 4);
  return dot == std::string::npos ? tensor : tensor.substr(dot + 1);
}

bool same_shape(const op::Weight& a, const op::Weight& b) {
  return a.rows == b.rows && a.columns == b.columns;
}

// Any column from any place.
std::vector<int64_t> mapped(int64_t count, const std::function<int64_t(int64_t)>& from) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = from(i);
  return out;
}

// All columns but those of [first, last).
Columns without(int64_t first, int64_t last) {
  return [=](int64_t count) {
    return mapped(count,
                  [=](int64_t i) { return i >= first && i < last ? op::Deviation::kZeros : i; });
  };
}

Columns only(int64_t first, int64_t last) {
  return [=](int64_t count) {
    return mapped(count,
                  [=](int64_t i) { return i >= first && i < last ? i : op::Deviation::kZeros; });
  };
}

// A matrix of `rows` by count / rows numbers, transposed; within blocks of `block`.
Columns transposed_blocks(int64_t block, int64_t rows) {
  return [=](int64_t count) -> std::vector<int64_t> {
    if (block <= 0 || rows <= 1 || block % rows != 0 || rows == block || count % block != 0)
      return {};
    const int64_t columns = block / rows;
    return mapped(count, [=](int64_t i) {
      const int64_t at = i % block;
      return i - at + (at % columns) * rows + at / columns;
    });
  };
}

Columns swapped_halves() {
  return [](int64_t count) -> std::vector<int64_t> {
    const int64_t half = count / 2;
    if (half == 0) return {};
    return mapped(count, [=](int64_t i) { return i < 2 * half ? (i + half) % (2 * half) : i; });
  };
}

// The sizes by which an engine may group numbers of a row.
std::vector<int64_t> head_sizes(const op::Program& program) {
  std::set<int64_t> out;
  for (const op::Op& op : program.ops)
    if (const auto* attention = std::get_if<op::Attention>(&op.what)) {
      out.insert(attention->head_size);
      out.insert(attention->value_size);
    }
  return {out.begin(), out.end()};
}

void shard_hypotheses(const op::Linear& linear, std::vector<Hypothesis>& out) {
  const std::string tensor = linear.weight.name;
  const int64_t columns = linear.weight.columns;
  const auto add = [&](int64_t first, int64_t last, bool kept, Alteration alter) {
    out.push_back(
        {"weight.shard",
         fmt::format("{} columns {} to {} of {} {} in the sum", kept ? "only" : "the", first,
                     last - 1, tensor, kept ? "are" : "are not"),
         "Look at how the matrix is split: over devices, threads or tiles, and at the "
         "last, shorter part.",
         {{"tensor", tensor},
          {"part", fmt::format("{} columns {} to {}", kept ? "only" : "without", first, last - 1)}},
         std::move(alter)});
    out.back().rank = 1;
  };
  // A tail that whole vectors or tiles do not reach.
  for (const int64_t step : {4, 8, 16, 32, 64, 128, 256, 512, 1024})
    if (const int64_t whole = columns / step * step; whole < columns && whole > 0)
      add(whole, columns, false, input_columns(without(whole, columns)));
  for (const int64_t parts : {2, 3, 4, 8}) {
    if (columns % parts != 0) continue;
    const int64_t size = columns / parts;
    for (int64_t i = 0; i < parts; ++i) {
      add(i * size, (i + 1) * size, true, input_columns(only(i * size, (i + 1) * size)));
      if (parts > 2)
        add(i * size, (i + 1) * size, false, input_columns(without(i * size, (i + 1) * size)));
    }
  }
}

void order_hypotheses(const Findings& findings, const op::Linear& linear,
                      std::vector<Hypothesis>& out) {
  const std::string tensor = linear.weight.name;
  const auto rows = [&](const std::string& how, Columns columns) {
    out.push_back({"weight.rows",
                   fmt::format("the rows of {} are in another order: {}", tensor, how),
                   "Look at the conversion of this matrix, and at the order of heads and of the "
                   "pairs that are rotated.",
                   {{"tensor", tensor}, {"rows", how}},
                   output_columns(std::move(columns))});
    out.back().rank = 1;
  };
  const auto columns = [&](const std::string& how, Columns taken) {
    out.push_back({"weight.layout",
                   fmt::format("the columns of {} are in another order: {}", tensor, how),
                   "Look at the layout of this matrix, and at the order of what it is multiplied "
                   "with.",
                   {{"tensor", tensor}, {"how", how}},
                   input_columns(std::move(taken))});
    out.back().rank = 1;
  };
  rows("halves swapped", swapped_halves());
  columns("halves swapped", swapped_halves());
  for (const int64_t size : head_sizes(findings.program())) {
    rows(fmt::format("of each head of {}, halves taken for neighbours", size),
         transposed_blocks(size, size / 2));
    rows(fmt::format("of each head of {}, neighbours taken for halves", size),
         transposed_blocks(size, 2));
    const int64_t width = linear.weight.rows;
    if (width % size == 0) {
      rows("heads and their numbers transposed", transposed_blocks(width, size));
      rows("numbers and their heads transposed", transposed_blocks(width, width / size));
    }
    const int64_t in = linear.weight.columns;
    if (in % size == 0) {
      columns("heads and their numbers transposed", transposed_blocks(in, size));
      columns("numbers and their heads transposed", transposed_blocks(in, in / size));
    }
  }
}

void slice_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Program& program = findings.program();
  const op::Op& op = program.ops[index];
  const int64_t own = std::get<op::Slice>(op.what).first;
  struct Part {
    int64_t first;
    int64_t width;
    std::string name;
  };
  std::vector<Part> parts;
  size_t self = 0;
  for (const op::Op& other : program.ops)
    if (const auto* slice = std::get_if<op::Slice>(&other.what);
        slice != nullptr && other.inputs == op.inputs) {
      if (slice->first == own) self = parts.size();
      const op::Value& value = program.value(other.outputs[0]);
      parts.push_back({slice->first, value.width, short_name(value)});
    }
  const std::string fix = "Look at how the fused projection is cut into its parts.";
  // All orders of the parts.
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::set<int64_t> tried = {own};
  while (std::ranges::next_permutation(order).found) {
    int64_t first = 0;
    std::string names;
    for (const size_t part : order) names += (names.empty() ? "" : ", ") + parts[part].name;
    for (const size_t part : order) {
      if (part == self) break;
      first += parts[part].width;
    }
    if (!tried.insert(first).second) continue;
    out.push_back({"slices.swapped",
                   fmt::format("it takes the parts of the fused projection for {}", names),
                   fix,
                   {{"order", names}},
                   slice_first(first)});
    out.back().of_one_op = true;
  }
  // The parts of each head together, or number by number.
  const int64_t width = program.value(op.inputs[0]).width;
  const auto interleaved = [&](int64_t groups) {
    if (groups <= 1 ||
        std::ranges::any_of(parts, [&](const Part& part) { return part.width % groups != 0; }))
      return;
    Columns columns = [parts, groups, width](int64_t count) -> std::vector<int64_t> {
      if (count != width) return {};
      std::vector<int64_t> taken(static_cast<size_t>(count), op::Deviation::kZeros);
      int64_t of_group = 0;
      for (const Part& part : parts) of_group += part.width / groups;
      int64_t before = 0;
      for (const Part& part : parts) {
        const int64_t size = part.width / groups;
        for (int64_t i = 0; i < part.width; ++i)
          taken[static_cast<size_t>(part.first + i)] = i / size * of_group + before + i % size;
        before += size;
      }
      return taken;
    };
    out.push_back({"slices.swapped",
                   fmt::format("it takes the parts of the fused projection for interleaved, {} "
                               "times one after another",
                               groups),
                   fix,
                   {{"order", fmt::format("interleaved, {} groups", groups)}},
                   input_columns(std::move(columns))});
    out.back().of_one_op = true;
  };
  std::set<int64_t> counts;
  for (const op::Op& other : program.ops)
    if (const auto* attention = std::get_if<op::Attention>(&other.what)) {
      counts.insert(attention->heads);
      counts.insert(attention->kv_heads);
    }
  for (const Part& part : parts) counts.insert(part.width);
  for (const int64_t count : counts) interleaved(count);
}

// A part of each head is taken from the other end of the head.
void head_part_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Program& program = findings.program();
  const op::Op& op = program.ops[index];
  const auto& own = std::get<op::HeadParts>(op.what);
  const op::Value& input = program.value(op.inputs[0]);
  const int64_t size = input.width / own.heads;
  for (const int64_t first : {int64_t{0}, size - own.width})
    if (first != own.first) {
      out.push_back(
          {"slices.swapped",
           fmt::format("of each head of {} it takes the {} {} numbers, which should be "
                       "those from {} on",
                       short_name(input), first == 0 ? "first" : "last", own.width, own.first),
           "Look at which numbers of a head are rotated, and at the order of keys and "
           "values.",
           {{"order", std::string(first == 0 ? "first" : "last")}},
           head_part_first(first)});
      out.back().of_one_op = true;
    }
}

}  // namespace

void weight_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Program& program = findings.program();
  const op::Op& op = program.ops[index];
  const op::Weight* weight = weight_of(op);
  if (weight == nullptr) return;
  const auto* linear = std::get_if<op::Linear>(&op.what);
  const bool square = weight->rows == weight->columns;
  if (linear != nullptr && linear->bias) {
    const std::string bias = linear->bias->name;
    out.push_back({"bias.missing",
                   fmt::format("it does not add {}", bias),
                   "Look whether this projection's bias is loaded and added.",
                   {{"tensor", bias}},
                   bias_times(0)});
    out.push_back({"bias.twice",
                   fmt::format("it adds {} twice", bias),
                   "Look for a second place that adds this projection's bias.",
                   {{"tensor", bias}},
                   bias_times(2)});
  }
  if (weight->rows > 1)
    out.push_back({square ? "weight.transposed" : "weight.layout",
                   square ? fmt::format("it uses {} transposed", weight->name)
                          : fmt::format("it reads {} with the wrong leading dimension, as if its "
                                        "numbers lay column by column",
                                        weight->name),
                   "Look at the order of the dimensions where this matrix is loaded or multiplied.",
                   {{"tensor", weight->name}},
                   reweigh(column_major)});
  // What the file has of the same shape: the same tensor of other layers first.
  std::set<const void*> seen = {weight->data.data()};
  const int64_t near = op.layer < 0 ? program.layers - 1 : op.layer;
  for (const bool same_role : {true, false})
    for (const op::Op& other : program.ops) {
      const op::Weight* used = weight_of(other);
      if (used == nullptr || !same_shape(*used, *weight) ||
          (role_of(used->name) == role_of(weight->name)) != same_role ||
          (!same_role && other.layer >= 0 && other.layer != near) ||
          !seen.insert(used->data.data()).second)
        continue;
      Hypothesis made{same_role ? "weight.other_layer" : "weight.other_tensor",
                      fmt::format("it uses {} in place of {}", used->name, weight->name),
                      same_role ? "Look at the layer's number where this tensor is looked up."
                                : "Look at the name under which this tensor is looked up.",
                      {{"tensor", weight->name}},
                      other_weight(*used)};
      made.of_one_op = true;
      if (same_role)
        made.parameters.push_back({"layer", other.layer});
      else
        made.parameters.push_back({"used", used->name});
      out.push_back(std::move(made));
    }
  // Biases of the same length.
  if (linear != nullptr && linear->bias)
    for (const op::Op& other : program.ops) {
      const auto* owner = std::get_if<op::Linear>(&other.what);
      if (owner == nullptr || !owner->bias || owner->bias->columns != linear->bias->columns ||
          owner->bias->data.data() == linear->bias->data.data())
        continue;
      const op::Weight used = *owner->bias;
      const bool same_role = role_of(used.name) == role_of(linear->bias->name);
      Hypothesis made{same_role ? "weight.other_layer" : "weight.other_tensor",
                      fmt::format("it adds {} in place of {}", used.name, linear->bias->name),
                      "Look at the name under which this tensor is looked up.",
                      {{"tensor", linear->bias->name}},
                      [used](Altered& altered, size_t at) {
                        return altered.change<op::Linear>(at, [&](op::Linear& changed) {
                          changed.bias = used;
                          return true;
                        });
                      }};
      made.of_one_op = true;
      if (same_role)
        made.parameters.push_back({"layer", other.layer});
      else
        made.parameters.push_back({"used", used.name});
      out.push_back(std::move(made));
    }
}

void layout_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::What& what = findings.program().ops[index].what;
  if (const auto* linear = std::get_if<op::Linear>(&what)) {
    order_hypotheses(findings, *linear, out);
    shard_hypotheses(*linear, out);
  }
  if (std::holds_alternative<op::Slice>(what)) slice_hypotheses(findings, index, out);
  if (std::holds_alternative<op::HeadParts>(what)) head_part_hypotheses(findings, index, out);
}

}  // namespace lockstep::doctor
