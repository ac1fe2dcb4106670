#include "doctor/targets.h"

#include <algorithm>
#include <map>
#include <string>

namespace lockstep::doctor {

TargetSets targets_of(const Examination& examination) {
  const op::Program& program = examination.base().program();
  TargetSets out;
  const auto& stretch = examination.stretch();
  const auto add = [&](const std::vector<size_t>& ops) {
    if (ops.size() > 1 && std::ranges::find(out.together, ops) == out.together.end())
      out.together.push_back(ops);
  };
  std::map<std::string, std::vector<size_t>> by_name;
  std::map<size_t, std::vector<size_t>> by_kind;
  std::map<std::pair<int64_t, size_t>, std::vector<size_t>> by_layer;
  for (const size_t op : stretch) {
    const op::Op& here = program.ops[op];
    by_name[short_name(program.value(here.outputs[0]))].push_back(op);
    by_kind[here.what.index()].push_back(op);
    by_layer[{here.layer, here.what.index()}].push_back(op);
  }
  out.layers = std::ranges::any_of(by_name, [](const auto& all) { return all.second.size() > 1; });
  if (out.layers) {
    // Of kinds without weights one mistake is in all; matrices have their own each.
    for (const auto& [kind, ops] : by_kind)
      if (!std::holds_alternative<op::Linear>(program.ops[ops.front()].what)) add(ops);
    for (const auto& [name, ops] : by_name) add(ops);
    for (const auto& [kind, ops] : by_kind) add(ops);
  }
  for (const auto& [kind, ops] : by_layer) add(ops);
  for (auto op = stretch.rbegin(); op != stretch.rend(); ++op) out.single.push_back({*op});
  return out;
}

}  // namespace lockstep::doctor
