#include "parity/same_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trace/checkpoints.h"

namespace lockstep::parity {
namespace {

// In the same steps, from the first position on, without a gap: nothing has to be derived.
bool same_steps(const trace::Trace& a, const trace::Trace& b) {
  int64_t end = 0;
  return std::ranges::equal(
      a.manifest().steps, b.manifest().steps,
      [&](const trace::StepInfo& x, const trace::StepInfo& y) {
        const bool next = x.first_position == std::exchange(end, end + x.tokens);
        return next && x.first_position == y.first_position && x.tokens == y.tokens;
      });
}

// The type that stands for a trace (replay.cpp).
DType first_dtype(const trace::Trace& trace) {
  const auto& checkpoints = trace.manifest().checkpoints;
  return checkpoints.empty() ? DType::kF32 : checkpoints.front().dtype;
}

bool judged_alike(const SideScope& a, const SideScope& b) {
  const trace::Manifest& of_a = a.trace->manifest();
  const trace::Manifest& of_b = b.trace->manifest();
  return a.judged() && b.judged() && a.model == b.model && a.precision == b.precision &&
         a.tokens == b.tokens && a.replayed == b.replayed && of_a.forward == of_b.forward &&
         a.forwards.size() == b.forwards.size() && same_steps(*a.trace, *b.trace) &&
         first_dtype(*a.trace) == first_dtype(*b.trace);
}

bool same_numbers(const View& a, const View& b) {
  return a.dtype == b.dtype && a.shape == b.shape &&
         std::memcmp(a.data, b.data, static_cast<size_t>(a.size() * size_bytes(a.dtype))) == 0;
}

}  // namespace

SameRows::SameRows(const SideScope& a, const SideScope& b, std::string_view used)
    : a_(a), b_(b), used_(used), alike_(judged_alike(a, b)) {}

bool SameRows::of(op::ValueId id) {
  if (!alike_) return false;
  const op::Program& program = a_.forwards.front().program;
  const auto op = std::ranges::find_if(program.ops, [&](const op::Op& each) {
    return std::ranges::find(each.outputs, id) != each.outputs.end();
  });
  if (op == program.ops.end() || recorded(program.value(id).name) == Recorded::kOtherwise)
    return false;
  // What an op makes besides is read too, where it was recorded: attention's scores.
  const auto is_alike = [&](op::ValueId value) {
    const std::string& name = program.value(value).name;
    return (!a_.trace->has(name) && !b_.trace->has(name)) || recorded(name) != Recorded::kOtherwise;
  };
  return std::ranges::all_of(op->outputs, is_alike) &&
         std::ranges::all_of(op->inputs,
                             [&](op::ValueId input) { return is_whole_and_alike(input); });
}

// Nothing has to be derived for it, which would read what lies before.
bool SameRows::is_whole_and_alike(op::ValueId id) {
  const op::Value& value = a_.forwards.front().program.value(id);
  return value.shape != op::Value::Shape::kScores && trace::in_checkpoints(used_, value.name) &&
         recorded(value.name) == Recorded::kAlikeEverywhere &&
         a_.trace->checkpoint(value.name)->width >= value.width;
}

SameRows::Recorded SameRows::recorded(const std::string& name) {
  const auto [found, is_new] = names_.try_emplace(name, Recorded::kOtherwise);
  const trace::CheckpointInfo* of_a = a_.trace->checkpoint(name);
  const trace::CheckpointInfo* of_b = b_.trace->checkpoint(name);
  // The type counts also where no step has the value.
  if (!is_new || of_a == nullptr || of_b == nullptr || of_a->dtype != of_b->dtype)
    return found->second;
  bool everywhere = true;
  const auto& steps = a_.trace->manifest().steps;
  for (size_t step = 0; step < steps.size(); ++step) {
    const auto a = a_.trace->value(step, name);
    const auto b = b_.trace->value(step, name);
    if (a.has_value() != b.has_value() || (a && !same_numbers(*a, *b))) return Recorded::kOtherwise;
    // One row a token. Another shape is that of scores, which no op reads as rows.
    everywhere = everywhere && a && a->shape.size() == 2 && a->shape[0] == steps[step].tokens;
  }
  return found->second = everywhere ? Recorded::kAlikeEverywhere : Recorded::kAlike;
}

}  // namespace lockstep::parity
