// Hypotheses on embeddings, sums and scales; and the list of all.
#include <algorithm>
#include <cmath>

#include "doctor/hypothesis.h"

namespace lockstep::doctor {
namespace {

using op::ValueId;

const op::Op* producer_of(const op::Program& program, ValueId id) {
  for (const op::Op& op : program.ops)
    if (std::ranges::find(op.outputs, id) != op.outputs.end()) return &op;
  return nullptr;
}

void embedding_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Op& op = findings.program().ops[index];
  const auto& embed = std::get<op::Embed>(op.what);
  const bool tokens = embed.index == op::Embed::Index::kToken;
  for (const int offset : {1, -1, 2, -2, 3, -3}) {
    if (tokens)
      out.push_back(
          {"embedding.row",
           fmt::format("it looks up the row of token id {:+d} in {}", offset, embed.table.name),
           "Look at the index into the embedding table, and at where the table starts.",
           {{"offset", int64_t{offset}}},
           token_offset(offset)});
    else
      out.push_back({"embedding.position",
                     fmt::format("it looks up position {:+d} in {}", offset, embed.table.name),
                     "Look at the index into the table of positions, and at the position of the "
                     "first token.",
                     {{"offset", int64_t{offset}}},
                     position_offset(offset)});
  }
  if (!tokens) return;
  for (const int offset : {-1, 1})
    out.push_back(
        {"tokens.shifted",
         fmt::format("it embeds the token of the {} position", offset < 0 ? "previous" : "next"),
         "Look at which token goes with which position.",
         {{"offset", int64_t{offset}}},
         reads_rows([offset, end = findings.trace.positions()](int64_t position) {
           const int64_t other = position + offset;
           return other < 0 || other >= end ? position : other;
         })});
}

// Values of the same width that the op could have read by mistake.
std::vector<ValueId> other_inputs(const Findings& findings, size_t index, size_t input) {
  const op::Program& program = findings.program();
  const op::Op& op = program.ops[index];
  // To read what a factor is applied to is to leave the factor out, which has a name of its own.
  const op::Op* source = producer_of(program, op.inputs[input]);
  const bool scaled = source != nullptr && std::holds_alternative<op::Scale>(source->what);
  std::vector<ValueId> out;
  for (size_t i = 0; i < index; ++i) {
    const op::Op& other = program.ops[i];
    const bool near = other.layer == op.layer || other.layer + 1 == op.layer ||
                      (op.layer < 0 && other.layer + 1 == program.layers) || other.layer < 0;
    const ValueId id = other.outputs[0];
    if (near && id != op.inputs[input] && !(scaled && id == source->inputs[0]) &&
        program.value(id).width == program.value(op.inputs[input]).width)
      out.push_back(id);
  }
  std::ranges::reverse(out);
  return out;
}

void sum_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Program& program = findings.program();
  const op::Op& op = program.ops[index];
  const auto name = [&](ValueId id) { return program.value(id).name; };
  if (shared_expert_hypotheses(findings, index, out)) return;
  const std::string fix = "Look at the addition of the residual: what is added to what.";
  const op::Op* second = producer_of(program, op.inputs[1]);
  const bool positions = second != nullptr && std::holds_alternative<op::Embed>(second->what);
  if (positions) {
    out.push_back({"embedding.position",
                   "it does not add the embedding of the position",
                   "Look whether the table of positions is added.",
                   {},
                   passes_on(0)});
  } else {
    out.push_back({"residual.missing",
                   fmt::format("it is {} alone: the residual is not added", name(op.inputs[1])),
                   fix,
                   {{"used", name(op.inputs[1])}},
                   passes_on(1)});
    out.push_back({"residual.missing",
                   fmt::format("it is {} alone: the branch is not added", name(op.inputs[0])),
                   fix,
                   {{"used", name(op.inputs[0])}},
                   passes_on(0)});
  }
  if (const auto* scale = second != nullptr ? std::get_if<op::Scale>(&second->what) : nullptr)
    out.push_back({"residual.scale_of_sum",
                   fmt::format("the factor {:g} is applied to the whole sum, not to {} alone",
                               scale->factor, name(second->inputs[0])),
                   "Look at where the factor of the branch stands: before the sum.",
                   {{"factor", scale->factor}},
                   scaled_sum()});
  for (const size_t kept : {size_t{1}, size_t{0}})
    out.push_back({"residual.input",
                   fmt::format("it adds {} to itself", name(op.inputs[kept])),
                   fix,
                   {{"used", name(op.inputs[kept])}},
                   keeps_inputs({kept, kept})});
  struct Counted {
    const char* how;
    double first;
    double second;
  };
  for (const Counted& counted :
       {Counted{"it adds {1} twice", 1, 2}, Counted{"it adds {0} twice", 2, 1},
        Counted{"it takes {1} off", 1, -1}, Counted{"it takes {0} off", -1, 1}}) {
    out.push_back({"residual.input",
                   fmt::format(fmt::runtime(counted.how), name(op.inputs[0]), name(op.inputs[1])),
                   fix,
                   {{"used", fmt::format("{:g} · {} + {:g} · {}", counted.first, name(op.inputs[0]),
                                         counted.second, name(op.inputs[1]))}},
                   weighted_sum(counted.first, counted.second)});
    out.back().rank = 1;
  }
  for (const size_t input : {size_t{0}, size_t{1}})
    for (const ValueId other : other_inputs(findings, index, input))
      if (std::ranges::find(op.inputs, other) == op.inputs.end())
        out.push_back(
            {"residual.input",
             fmt::format("it adds {} in place of {}", name(other), name(op.inputs[input])),
             fix,
             {{"used", name(other)}},
             reads_value(input, other),
             {},
             0,
             true});
}

void scale_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const double factor = std::get<op::Scale>(findings.program().ops[index].what).factor;
  const std::string fix = "Look at the factor that this model's metadata has for this place.";
  out.push_back({"scale.missing",
                 fmt::format("the factor {:g} is left out", factor),
                 fix,
                 {{"expected", factor}, {"found", 1.0}},
                 scale_factor(1)});
  for (const double found : {1 / factor, factor * factor, std::sqrt(std::fabs(factor))})
    out.push_back({"scale.value",
                   fmt::format("the factor is {:g}, not {:g}", found, factor),
                   fix,
                   {{"expected", factor}, {"found", found}},
                   scale_factor(found)});
}

void cap_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const double own = std::get<op::SoftCap>(findings.program().ops[index].what).cap;
  const std::string fix = "Look at the soft cap of the logits.";
  out.push_back({"logits.soft_cap",
                 fmt::format("the logits are not capped at {:g}", own),
                 fix,
                 {{"value", 0.0}},
                 passes_on(0)});
  for (const double value : {30.0, 50.0, 20.0, 15.0})
    if (value != own)
      out.push_back({"logits.soft_cap",
                     fmt::format("the logits are capped at {:g}, not at {:g}", value, own),
                     fix,
                     {{"value", value}},
                     logit_cap(value)});
}

// What became of logits after the last op.
void logits_hypotheses(std::vector<Hypothesis>& out) {
  const auto add = [&](const char* value, const char* text, bool logarithm) {
    out.push_back({"logits.normalized",
                   text,
                   "Look at what is recorded or handed on as logits: it is before the softmax.",
                   {{"value", std::string(value)}},
                   then(
                       [logarithm](std::span<double> row) {
                         const double largest = *std::ranges::max_element(row);
                         double sum = 0;
                         for (const double x : row) sum += std::exp(x - largest);
                         for (double& x : row) {
                           x -= largest + std::log(sum);
                           if (!logarithm) x = std::exp(x);
                         }
                       },
                       logarithm ? "log softmax" : "softmax")});
  };
  add("log softmax", "they are logarithms of probabilities, not logits", true);
  add("softmax", "they are probabilities, not logits", false);
}

// An op that reads another value than it should. Where it is the input of the norm that it should
// have read, that norm is missing.
void input_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Program& program = findings.program();
  const op::Op& op = program.ops[index];
  const auto name = [&](ValueId id) { return program.value(id).name; };
  for (size_t input = 0; input < op.inputs.size(); ++input) {
    const op::Op* source = producer_of(program, op.inputs[input]);
    const bool normed = source != nullptr && std::holds_alternative<op::Norm>(source->what);
    for (const ValueId other : other_inputs(findings, index, input)) {
      const bool before_norm = normed && other == source->inputs[0];
      Hypothesis made{
          before_norm ? "norm.missing" : kUnknown,
          fmt::format("it reads {} in place of {}", name(other), name(op.inputs[input])),
          "Look at which buffer this operation reads.",
          {{"used", name(other)}},
          reads_value(input, other)};
      made.of_one_op = true;
      made.rank = before_norm ? 0 : 3;
      if (!before_norm) made.by_itself = "input.other";
      out.push_back(std::move(made));
    }
  }
}

}  // namespace

std::string short_name(const op::Value& value) {
  const size_t dot = value.name.rfind('.');
  return dot == std::string::npos ? value.name : value.name.substr(dot + 1);
}

std::vector<Hypothesis> catalogue(const Findings& findings, size_t index) {
  const op::What& what = findings.program().ops[index].what;
  std::vector<Hypothesis> out;
  if (std::holds_alternative<op::Embed>(what)) embedding_hypotheses(findings, index, out);
  if (std::holds_alternative<op::Norm>(what)) norm_hypotheses(findings, index, out);
  if (std::holds_alternative<op::Activate>(what)) activation_hypotheses(findings, index, out);
  if (std::holds_alternative<op::Add>(what)) sum_hypotheses(findings, index, out);
  if (std::holds_alternative<op::Scale>(what)) scale_hypotheses(findings, index, out);
  if (std::holds_alternative<op::SoftCap>(what)) cap_hypotheses(findings, index, out);
  if (std::holds_alternative<op::Rope>(what)) rope_hypotheses(findings, index, out);
  if (std::holds_alternative<op::Attention>(what)) attention_hypotheses(findings, index, out);
  if (findings.program().ops[index].outputs[0] == findings.program().logits())
    logits_hypotheses(out);
  expert_hypotheses(findings, index, out);
  // Other readings of a weight's raw blocks belong here: reweigh() hands them the weight as the
  // file has it.
  weight_hypotheses(findings, index, out);
  layout_hypotheses(findings, index, out);
  row_hypotheses(findings, index, out);
  if (!std::holds_alternative<op::Add>(what) && !std::holds_alternative<op::Slice>(what) &&
      !std::holds_alternative<op::HeadParts>(what))
    input_hypotheses(findings, index, out);
  return out;
}

}  // namespace lockstep::doctor
