#include "doctor/quantities.h"

#include <cmath>

namespace lockstep::doctor {
namespace {

std::vector<Quantity> rope_quantities(const op::Rope& own, bool several) {
  const auto changed = [](std::function<void(op::Rope&, double)> how) {
    return [how](double value) {
      return rope([how, value](op::Rope& rope) {
        how(rope, value);
        return true;
      });
    };
  };
  std::vector<Quantity> out;
  out.push_back(
      {.cause = "rope.base",
       .text = [base = own.base](
                   double v) { return fmt::format("the base is {:g}, not {:g}", v, base); },
       .fix = "Look at where the base of the rotation is read from the file.",
       .alter = [](double v) { return rope_base(v); },
       .low = 1,
       .high = 9,
       .steps = 160,
       .own = own.base});
  out.push_back({.cause = "rope.scaling",
                 .text =
                     [scale = own.position_scale](double v) {
                       return fmt::format("positions are scaled by {:g}, not by {:g}", v, scale);
                     },
                 .fix = "Look at the scaling of the rotation in the file's metadata.",
                 .alter = changed([](op::Rope& rope, double v) { rope.position_scale = v; }),
                 .low = -3,
                 .high = 2,
                 .steps = 150,
                 .own = own.position_scale});
  // Of q and k together that is a scale of attention, which is likelier.
  if (!several)
    out.push_back(
        {.cause = "rope.magnitude",
         .text =
             [magnitude = own.magnitude](double v) {
               return fmt::format("rotated numbers are multiplied by {:g}, not by {:g}", v,
                                  magnitude);
             },
         .fix = "Look at the factor of the rotated numbers (the attention factor of YaRN).",
         .alter = changed([](op::Rope& rope, double v) { rope.magnitude = v; }),
         .rank = 1,
         .low = -2,
         .high = 2,
         .steps = 40,
         .own = own.magnitude});
  return out;
}

std::vector<Quantity> attention_quantities(const op::Attention& own) {
  const double power = std::log10(own.scale);
  return {{.cause = "attention.scale",
           .text =
               [scale = own.scale](double v) {
                 return fmt::format("q · k is multiplied by {:.6g}, not {:.6g}", v, scale);
               },
           .fix = "Look at the factor of q · k.",
           .alter = [](double v) { return attention_scale(v); },
           .low = power - 3,
           .high = power + 3,
           .steps = 90,
           .own = own.scale},
          {.cause = "attention.soft_cap",
           .text =
               [cap = own.soft_cap](double v) {
                 return cap > 0 ? fmt::format("scores are capped at {:g}, not at {:g}", v, cap)
                                : fmt::format("scores are capped at {:g}", v);
               },
           .fix = own.soft_cap > 0 ? "Look at the soft cap of the scores."
                                   : "Look for a soft cap that this model has not.",
           .alter = [](double v) { return soft_cap(v); },
           .low = -1,
           .high = 3,
           .steps = 60,
           .own = own.soft_cap},
          {.cause = "attention.mask",
           .text =
               [](double v) {
                 return fmt::format("the scores of keys out of sight are {:g}, not minus infinity",
                                    -v);
               },
           .fix = "Look at the number that masks scores.",
           .parameter = "hidden",
           .negative = true,
           .rare = true,
           .alter = [](double v) { return hidden_as(-v); },
           .low = -1,
           .high = 2,
           .steps = 60,
           .own = 0}};
}

}  // namespace

Hypothesis Quantity::hypothesis(double value) const {
  Hypothesis out{cause, text(value), fix, more, alter(value)};
  out.parameters.push_back({parameter, negative ? -value : value});
  out.fitted = 1;
  out.rank = rank;
  return out;
}

std::vector<Quantity> quantities_of(const op::Op& op, bool several) {
  if (const auto* rope = std::get_if<op::Rope>(&op.what)) return rope_quantities(*rope, several);
  if (const auto* attention = std::get_if<op::Attention>(&op.what))
    return attention_quantities(*attention);
  if (const auto* norm = std::get_if<op::Norm>(&op.what))
    return {
        {.cause = "norm.epsilon",
         .text = [epsilon = norm->epsilon](
                     double v) { return fmt::format("the epsilon is {:g}, not {:g}", v, epsilon); },
         .fix = "Look at the epsilon of the norm, and at where it is read from the file.",
         .alter = [](double v) { return epsilon(v); },
         .low = -12,
         .high = 1,
         .steps = 52,
         .own = norm->epsilon}};
  if (const auto* soft = std::get_if<op::SoftCap>(&op.what))
    return {{.cause = "logits.soft_cap",
             .text =
                 [cap = soft->cap](double v) {
                   return fmt::format("the logits are capped at {:g}, not at {:g}", v, cap);
                 },
             .fix = "Look at the soft cap of the logits.",
             .alter = [](double v) { return logit_cap(v); },
             .low = -1,
             .high = 3,
             .steps = 60,
             .own = soft->cap}};
  if (const auto* scale = std::get_if<op::Scale>(&op.what))
    return {
        {.cause = "scale.value",
         .text = [factor = scale->factor](
                     double v) { return fmt::format("the factor is {:g}, not {:g}", v, factor); },
         .fix = "Look at the factor that this model's metadata has for this place.",
         .more = {{"expected", scale->factor}},
         .parameter = "found",
         .alter = [](double v) { return scale_factor(v); },
         .low = -4,
         .high = 4,
         .steps = 80,
         .own = scale->factor}};
  return {};
}

}  // namespace lockstep::doctor
