#include "parity/forward.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep::parity {
namespace {

bool programs_differ(const op::Program& a, const op::Program& b) {
  return !std::ranges::equal(a.ops, b.ops, [](const op::Op& x, const op::Op& y) {
    const auto* p = std::get_if<op::Rope>(&x.what);
    const auto* q = std::get_if<op::Rope>(&y.what);
    return p == nullptr || q == nullptr ||
           (p->factors == q->factors && p->base == q->base &&
            p->position_scale == q->position_scale);
  });
}

void set_ropes(const trace::ForwardInfo& given, op::Program& program) {
  for (op::Op& op : program.ops)
    if (auto* rope = std::get_if<op::Rope>(&op.what)) {
      if (given.rope_base) rope->base = *given.rope_base;
      if (given.rope_scale) rope->position_scale = *given.rope_scale;
    }
}

std::string with_ropes(const trace::ForwardInfo& given, std::string settings) {
  const auto add = [&](const char* what, const std::optional<double>& value) {
    if (value) settings += fmt::format("{}{} {:g}", settings.empty() ? "" : " and ", what, *value);
  };
  add("a rope base of", given.rope_base);
  add("positions scaled by", given.rope_scale);
  return settings.empty() ? "the file's own settings" : settings;
}

}  // namespace

int64_t step_end(const trace::Trace& trace, int64_t position) {
  const auto& steps = trace.manifest().steps;
  const auto after =
      std::ranges::upper_bound(steps, position, {}, &trace::StepInfo::first_position);
  if (after == steps.begin()) return position + 1;
  const trace::StepInfo& step = *std::prev(after);
  return std::max(position + 1, step.first_position + step.tokens);
}

bool ropes_differ(const Traced& a, const Traced& b, std::span<const int64_t> positions) {
  const auto is_early = [](const Traced& side, int64_t position) {
    return side.forward.early && step_end(side.trace, position) <= side.forward.early_end;
  };
  bool looked_at[2][2] = {};
  for (const int64_t position : positions) {
    const bool p = is_early(a, position);
    const bool q = is_early(b, position);
    if (std::exchange(looked_at[p][q], true)) continue;
    if (programs_differ(p ? *a.forward.early : a.forward.program,
                        q ? *b.forward.early : b.forward.program))
      return true;
  }
  return false;
}

Result<std::vector<Forward>> forwards_of(const model::Model& model, const trace::Trace& trace) {
  const trace::ForwardInfo& given = trace.manifest().forward;
  const int64_t most = model.config().context_length;
  const int64_t positions = std::clamp<int64_t>(trace.positions(), 1, most);
  const int64_t original = std::clamp<int64_t>(model.config().rope_original_context, 1, most);
  const auto program = [&](int64_t context) -> Result<op::Program> {
    LS_TRY(op::Program out, model.program(std::clamp<int64_t>(context, 1, most)));
    out.context_length = std::max(out.context_length, positions);
    set_ropes(given, out);
    return out;
  };
  LS_TRY(const op::Program shorter, program(original));
  LS_TRY(const op::Program longer, program(most));
  if (!programs_differ(shorter, longer))
    return std::vector<Forward>{{longer, {}, 0, with_ropes(given, ""), false}};
  const bool assumed = !given.context_length && !given.context_grows;
  const auto forward = [&](const op::Program& main, std::optional<op::Program> early,
                           const std::string& context) {
    return Forward{main, std::move(early), original, with_ropes(given, context), assumed};
  };
  const Forward short_factors = forward(
      shorter, {}, fmt::format("a context of at most {} positions (short rope factors)", original));
  const Forward long_factors = forward(
      longer, {}, fmt::format("a context of more than {} positions (long rope factors)", original));
  const Forward growing = forward(
      longer, shorter,
      fmt::format("a context that grows with the positions (long rope factors from the step "
                  "on that goes beyond {})",
                  original));
  if (given.context_grows) return std::vector{growing};
  if (given.context_length)
    return std::vector{*given.context_length > original ? long_factors : short_factors};
  // It does not say: the positions that there are tell what is likeliest.
  if (positions <= original) return std::vector{short_factors, long_factors};
  return std::vector{long_factors, short_factors, growing};
}

}  // namespace lockstep::parity
