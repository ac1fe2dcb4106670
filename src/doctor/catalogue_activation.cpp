// Hypotheses on activation functions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "doctor/hypothesis.h"
#include "op/activation.h"

namespace lockstep::doctor {
namespace {

// One part of the function otherwise: its limits, its steepness, the 1 that is added.
void clamped_swish_hypotheses(std::vector<Hypothesis>& out) {
  using A = op::Activate;
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  const std::string limit_fix = "Look at the limit of gate and of up before they are multiplied.";
  struct Variant {
    const char* cause;
    const char* what;
    std::string fix;
    const char* key;
    const char* value;
    double limit_of_gate = A::kLimit;
    double limit_of_up = A::kLimit;
    double steepness = A::kSteepness;
    double added = 1;
  };
  const Variant variants[] = {
      {"activation.clamp", "gate and up are not cut to the limit of 7", limit_fix, "value", "none",
       kNoLimit, kNoLimit},
      {"activation.clamp", "up is not cut to the limit of 7", limit_fix, "value", "gate alone",
       A::kLimit, kNoLimit},
      {"activation.clamp", "gate is not cut to the limit of 7", limit_fix, "value", "up alone",
       kNoLimit},
      {"activation.kind", "1 is not added to up", "Look for the 1 that is added to up.", "kind",
       "without 1", A::kLimit, A::kLimit, A::kSteepness, 0},
      {"activation.kind", "gate is not multiplied by 1.702 in the sigmoid",
       "Look at the factor of gate in the sigmoid.", "kind", "silu, clamped", A::kLimit, A::kLimit,
       1},
  };
  for (const Variant& v : variants)
    out.push_back({v.cause,
                   v.what,
                   v.fix,
                   {{v.key, std::string(v.value)}},
                   gated_formula(
                       [=](A::Kind, double gate, double up) {
                         const double x = std::min(gate, v.limit_of_gate);
                         return x / (1 + std::exp(-v.steepness * x)) *
                                (std::clamp(up, -v.limit_of_up, v.limit_of_up) + v.added);
                       },
                       "clamped_swish(gate, up), computed otherwise")});
}

}  // namespace

void activation_hypotheses(const Findings& findings, size_t index, std::vector<Hypothesis>& out) {
  using Kind = op::Activate::Kind;
  const op::Op& op = findings.program().ops[index];
  const Kind own = std::get<op::Activate>(op.what).kind;
  const auto kind_name = [](Kind kind) {
    return kind == Kind::kSilu       ? "silu"
           : kind == Kind::kGeluTanh ? "gelu_tanh"
           : kind == Kind::kGeluErf  ? "gelu_erf"
                                     : "clamped_swish";
  };
  const std::string fix = "Look at the activation function that the feed-forward calls.";
  const bool gated = op.inputs.size() > 1;
  for (const Kind kind : {Kind::kSilu, Kind::kGeluTanh, Kind::kGeluErf, Kind::kClampedSwish})
    if (kind != own)
      out.push_back({"activation.kind",
                     fmt::format("the function is {}, not {}", kind_name(kind), kind_name(own)),
                     fix,
                     {{"kind", std::string(kind_name(kind))}},
                     activation(kind)});
  struct Named {
    const char* name;
    double (*function)(double);
  };
  constexpr Named kOthers[] = {
      {"relu", [](double x) { return std::max(x, 0.0); }},
      {"gelu_quick", [](double x) { return x / (1 + std::exp(-1.702 * x)); }},
      {"none", [](double x) { return x; }},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"relu_squared", [](double x) { return std::max(x, 0.0) * std::max(x, 0.0); }},
      {"softplus", [](double x) { return std::log1p(std::exp(x)); }},
      {"silu with the sign of its exponent wrong", [](double x) { return x / (1 + std::exp(x)); }},
      {"hard_swish", [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }},
      {"leaky_relu", [](double x) { return x > 0 ? x : 0.01 * x; }},
      {"elu", [](double x) { return x > 0 ? x : std::expm1(x); }},
      {"mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
  };
  for (const Named& other : kOthers)
    out.push_back({"activation.kind",
                   fmt::format("the function is {}, not {}", other.name, kind_name(own)),
                   fix,
                   {{"kind", std::string(other.name)}},
                   activation_function(other.function)});
  if (own == Kind::kClampedSwish) clamped_swish_hypotheses(out);
  if (!gated) return;
  out.push_back({"activation.inputs_swapped",
                 "the function is applied to up, and gate is the factor: the two are swapped",
                 "Look at the order of gate and up.",
                 {},
                 keeps_inputs({1, 0})});
  out.push_back({"activation.kind",
                 "gate is left out: it is the function of up alone",
                 "Look at the product of gate and up.",
                 {{"kind", std::string("without gate")}},
                 keeps_inputs({1})});
  out.push_back({"activation.kind",
                 "up is left out: it is the function of gate alone",
                 "Look at the product of gate and up.",
                 {{"kind", std::string("without up")}},
                 keeps_inputs({0})});
  out.push_back({"activation.kind",
                 "it is the function of gate times up",
                 "Look at what the function is applied to: gate alone, before the product.",
                 {{"kind", std::string("of the product")}},
                 gated_formula([](Kind kind, double gate,
                                  double up) { return op::activated(kind, gate * up); },
                               "f(gate · up)")});
  out.push_back({"activation.kind",
                 "up is added, not multiplied with",
                 "Look at the product of gate and up.",
                 {{"kind", std::string("sum")}},
                 gated_formula([](Kind kind, double gate,
                                  double up) { return op::activated(kind, gate) + up; },
                               "f(gate) + up")});
}

}  // namespace lockstep::doctor
