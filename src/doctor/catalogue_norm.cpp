// Hypotheses on norms.
#include <cmath>

#include "doctor/hypothesis.h"

namespace lockstep::doctor {
namespace {

// Other formulas of a norm.
void norm_formulas(bool layer, bool biased, std::vector<Hypothesis>& out) {
  const auto off = [layer](const NormGroup& group, double x) { return layer ? x - group.mean : x; };
  const auto spread = [layer](const NormGroup& group) {
    return layer ? group.variance : group.squares;
  };
  const std::string of = layer ? "variance" : "mean of squares";
  const auto add = [&](const char* cause, const char* value, const std::string& text,
                       const std::string& words, NormFormula formula) {
    out.push_back({cause,
                   text,
                   "Look at the formula of the norm.",
                   {{"value", std::string(value)}},
                   norm_formula(std::move(formula), words)});
    out.back().rank = 1;
  };
  add("norm.epsilon", "after the root", "it adds the epsilon after the root",
      fmt::format("x / (sqrt({}) + epsilon) · weight", of),
      [=](const NormGroup& group, double x, double weight, double bias) {
        return off(group, x) / (std::sqrt(spread(group)) + group.epsilon) * weight + bias;
      });
  add("norm.kind", "sum", "it divides by the root of the sum of squares, not of their mean",
      "x / sqrt(sum of squares + epsilon) · weight",
      [=](const NormGroup& group, double x, double weight, double bias) {
        return off(group, x) / std::sqrt(group.count * spread(group) + group.epsilon) * weight +
               bias;
      });
  add("norm.kind", "n - 1", "the mean of squares is their sum over n - 1, not over n",
      "x / sqrt(sum of squares / (n - 1) + epsilon) · weight",
      [=](const NormGroup& group, double x, double weight, double bias) {
        const double most = spread(group) * group.count / (group.count - 1);
        return off(group, x) / std::sqrt(most + group.epsilon) * weight + bias;
      });
  add("norm.kind", "no root", fmt::format("it divides by the {}, not by its root", of),
      fmt::format("x / ({} + epsilon) · weight", of),
      [=](const NormGroup& group, double x, double weight, double bias) {
        return off(group, x) / (spread(group) + group.epsilon) * weight + bias;
      });
  add("norm.kind", "weight twice", "it multiplies with the weight twice",
      fmt::format("x / sqrt({} + epsilon) · weight · weight", of),
      [=](const NormGroup& group, double x, double weight, double bias) {
        return off(group, x) / std::sqrt(spread(group) + group.epsilon) * weight * weight + bias;
      });
  add("norm.kind", layer ? "mean of squares" : "variance",
      layer ? "it divides by the root of the mean of squares, not of the variance"
            : "it divides by the root of the variance, not of the mean of squares",
      fmt::format("x / sqrt({} + epsilon) · weight", layer ? "mean of squares" : "variance"),
      [=](const NormGroup& group, double x, double weight, double bias) {
        const double other = layer ? group.squares : group.variance;
        return off(group, x) / std::sqrt(other + group.epsilon) * weight + bias;
      });
  if (biased)
    add("norm.kind", "bias first", "it adds the bias before it multiplies with the weight",
        fmt::format("(x / sqrt({} + epsilon) + bias) · weight", of),
        [=](const NormGroup& group, double x, double weight, double bias) {
          return (off(group, x) / std::sqrt(spread(group) + group.epsilon) + bias) * weight;
        });
}

}  // namespace

void norm_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  const op::Op& op = findings.program().ops[index];
  const auto& norm = std::get<op::Norm>(op.what);
  const bool layer = norm.kind == op::Norm::Kind::kLayer;
  const std::string name = norm.weight.name;
  out.push_back({"norm.missing",
                 "it hands on the input of the norm as it is",
                 "Look whether the norm is called at all, and whether its result is what is used.",
                 {},
                 passes_on(0)});
  out.push_back({"norm.weight_missing",
                 fmt::format("it does not multiply with {}", name),
                 "Look at the product with the norm's weight.",
                 {{"tensor", name}},
                 norm_weight([](float) { return 1.0F; })});
  out.push_back({"norm.weight_offset",
                 fmt::format("it multiplies with 1 + {}", name),
                 "Look at the norm's weight: some model families store it less 1, this file does "
                 "not.",
                 {{"tensor", name}},
                 norm_weight([](float w) { return 1 + w; })});
  out.push_back({"norm.kind",
                 layer
                     ? "it does not remove the mean (an RMS norm where the model has a layer norm)"
                     : "it removes the mean (a layer norm where the model has an RMS norm)",
                 "Look at which kind of norm is called.",
                 {{"value", std::string(layer ? "rms" : "layer")}},
                 other_norm_kind()});
  out.push_back({"bias.missing",
                 "it does not add the norm's bias",
                 "Look at the norm's bias.",
                 {{"tensor", norm.bias ? norm.bias->name : std::string()}},
                 without_norm_bias()});
  out.push_back({"norm.kind",
                 "it normalizes the whole row at once, not each head by itself",
                 "Look at the length that the norm runs over.",
                 {{"value", std::string("row")}},
                 norm_group([](int64_t, int64_t width) { return width; })});
  norm_formulas(layer, norm.bias.has_value(), out);
  for (const double value : {1e-5, 1e-6, 1e-8, 1e-12, 1e-4, 1e-3, 1e-7, 0.0})
    if (value != norm.epsilon)
      out.push_back({"norm.epsilon",
                     fmt::format("the epsilon is {:g}, not {:g}", value, norm.epsilon),
                     "Look at the epsilon of the norm, and at where it is read from the file.",
                     {{"value", value}},
                     epsilon(value)});
}

}  // namespace lockstep::doctor
