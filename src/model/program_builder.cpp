#include "model/program_builder.h"

#include <fmt/format.h>

namespace lockstep::model {

ProgramBuilder::ProgramBuilder(const Config& config, int64_t context_length, Weights& weights)
    : config_(config), arch_(*config.arch), weights_(weights) {
  program_.layers = config.layers;
  program_.vocabulary = config.vocabulary;
  program_.context_length = context_length;
}

std::string ProgramBuilder::prefix() const {
  return layer_ < 0 ? "" : fmt::format("blk.{}.", layer_);
}

op::ValueId ProgramBuilder::value(const std::string& name, int64_t width, op::Value::Shape shape,
                                  bool checkpoint) {
  program_.values.push_back({prefix() + name, width, shape, checkpoint});
  return static_cast<ValueId>(program_.values.size() - 1);
}

op::ValueId ProgramBuilder::inner(const std::string& name, int64_t width) {
  return value(name, width, op::Value::Shape::kRows, kInner);
}

op::ValueId ProgramBuilder::add(op::What what, std::vector<ValueId> inputs, ValueId output) {
  program_.ops.push_back({std::move(what), std::move(inputs), {output}, layer_});
  return output;
}

std::optional<op::Weight> ProgramBuilder::bias(const std::string& weight, int64_t size,
                                               Architecture::Bias rule) {
  const std::string name = prefix() + weight + ".bias";
  if (rule == Architecture::Bias::kNone) return std::nullopt;
  if (rule == Architecture::Bias::kRequired) return weights_.vector(name, size);
  return weights_.optional_vector(name, size);
}

op::ValueId ProgramBuilder::linear(ValueId in, const std::string& name, const std::string& weight,
                                   int64_t in_width, int64_t out_width,
                                   Architecture::Bias bias_rule, bool checkpoint) {
  const op::Linear what{weights_.matrix(prefix() + weight + ".weight", out_width, in_width),
                        bias(weight, out_width, bias_rule)};
  return add(what, {in}, value(name, out_width, op::Value::Shape::kRows, checkpoint));
}

op::ValueId ProgramBuilder::expert_linear(ValueId in, ValueId choice, const std::string& name,
                                          const std::string& weight, int64_t in_width,
                                          int64_t out_width) {
  const int64_t experts = config_.experts.count;
  op::ExpertLinear what{
      experts, weights_.matrices(prefix() + weight + ".weight", experts, out_width, in_width), {}};
  if (arch_.expert_biases == Architecture::Bias::kRequired)
    what.bias = weights_.matrix(prefix() + weight + ".bias", experts, out_width);
  return add(what, {in, choice}, value(name, config_.experts.used * out_width));
}

op::ValueId ProgramBuilder::slice(ValueId in, const std::string& name, int64_t first,
                                  int64_t width) {
  return add(op::Slice{first}, {in}, value(name, width));
}

op::ValueId ProgramBuilder::norm(ValueId in, const std::string& name, const std::string& weight) {
  op::Norm what = norm_by(weight, config_.width, 1);
  if (arch_.norm == op::Norm::Kind::kLayer)
    what.bias = bias(weight, config_.width, arch_.norm_bias);
  return add(what, {in}, value(name, config_.width));
}

op::ValueId ProgramBuilder::norm(ValueId in, const std::string& name, const std::string& weight,
                                 int64_t width, int64_t group, int64_t weights) {
  return add(norm_by(weight, group, weights), {in}, value(name, width));
}

op::Norm ProgramBuilder::norm_by(const std::string& weight, int64_t group, int64_t weights) {
  op::Norm what;
  what.kind = arch_.norm;
  what.group = group;
  what.epsilon = config_.norm_epsilon;
  const std::string tensor = prefix() + weight + ".weight";
  what.weight =
      weights > 1 ? weights_.vectors(tensor, weights, group) : weights_.vector(tensor, group);
  return what;
}

}  // namespace lockstep::model
