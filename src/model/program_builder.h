// The parts that a forward pass is put together from: values with names, ops, and the weights that
// they take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/weights.h"
#include "op/program.h"

namespace lockstep::model {

class ProgramBuilder {
 protected:
  using ValueId = op::ValueId;
  static constexpr bool kInner = false;

  ProgramBuilder(const Config& config, int64_t context_length, Weights& weights);

  std::string prefix() const;  // of the layer's names

  // Whether the file has a tensor of the layer.
  bool has(const std::string& name) const { return weights_.has(prefix() + name); }

  ValueId value(const std::string& name, int64_t width,
                op::Value::Shape shape = op::Value::Shape::kRows, bool checkpoint = true);
  ValueId inner(const std::string& name, int64_t width);
  ValueId add(op::What what, std::vector<ValueId> inputs, ValueId output);

  std::optional<op::Weight> bias(const std::string& weight, int64_t size, Architecture::Bias rule);
  ValueId linear(ValueId in, const std::string& name, const std::string& weight, int64_t in_width,
                 int64_t out_width, Architecture::Bias bias_rule, bool checkpoint = true);
  ValueId linear(ValueId in, const std::string& name, const std::string& weight, int64_t in_width,
                 int64_t out_width) {
    return linear(in, name, weight, in_width, out_width, arch_.other_biases);
  }

  // By each chosen expert; widths are those of one.
  ValueId expert_linear(ValueId in, ValueId choice, const std::string& name,
                        const std::string& weight, int64_t in_width, int64_t out_width);

  ValueId slice(ValueId in, const std::string& name, int64_t first, int64_t width);

  // Of the stream, with its bias where the architecture has one.
  ValueId norm(ValueId in, const std::string& name, const std::string& weight);
  // Of each group of a row. `weights`: how many groups have a weight of their own, 1 where all
  // share one.
  ValueId norm(ValueId in, const std::string& name, const std::string& weight, int64_t width,
               int64_t group, int64_t weights);

  op::Norm norm_by(const std::string& weight, int64_t group, int64_t weights);

  const Config& config_;
  const Architecture& arch_;
  Weights& weights_;
  op::Program program_;
  int64_t layer_ = -1;  // -1: outside the layers
};

}  // namespace lockstep::model
