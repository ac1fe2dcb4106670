#include "exec/plan.h"

#include <algorithm>

namespace lockstep::exec {
namespace {

class Planner {
 public:
  explicit Planner(const op::Program& program) : program_(program) {}

  Plan make() {
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      const op::Op& op = program_.ops[i];
      if (std::holds_alternative<op::Linear>(op.what))
        add_product(i);
      else if (std::holds_alternative<op::ExpertLinear>(op.what))
        add_experts(i);
      else if (std::holds_alternative<op::Attention>(op.what))
        add_attention(i);
      else
        add_task(Stage::Task::Kind::kOp, i);
    }
    flush();
    assign_slots();
    return std::move(plan_);
  }

 private:
  using Task = Stage::Task;

  void add_task(Task::Kind kind, size_t op) {
    rows_.tasks.push_back({kind, op});
    if (kind == Task::Kind::kOp) rows_.ops.push_back(op);
  }

  void flush() {
    if (!rows_.tasks.empty()) plan_.stages.push_back(std::move(rows_));
    rows_ = {};
  }

  void add_product(size_t op) {
    const op::ValueId input = program_.ops[op].inputs[0];
    // What waits in rows_ comes after the last products and cannot have made their input.
    if (!plan_.stages.empty() && plan_.stages.back().kind == Stage::Kind::kProducts &&
        prepared_ == input) {
      plan_.stages.back().ops.push_back(op);
      return;
    }
    add_task(Task::Kind::kPrepare, op);
    prepared_ = input;
    flush();
    plan_.stages.push_back({Stage::Kind::kProducts, {}, {op}});
  }

  void add_experts(size_t op) {
    if (!plan_.stages.empty() && plan_.stages.back().kind == Stage::Kind::kExperts &&
        program_.ops[plan_.stages.back().ops[0]].inputs == program_.ops[op].inputs) {
      plan_.stages.back().ops.push_back(op);
      return;
    }
    flush();
    plan_.stages.push_back({Stage::Kind::kExperts, {}, {op}});
  }

  void add_attention(size_t op) {
    add_task(Task::Kind::kAppend, op);
    flush();
    plan_.stages.push_back({Stage::Kind::kAttention, {}, {op}});
  }

  void assign_slots() {
    std::vector<size_t> made(program_.values.size()), used(program_.values.size());
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      const auto use = [&](size_t op) {
        for (const op::ValueId id : program_.ops[op].inputs) used[static_cast<size_t>(id)] = s;
      };
      for (const Task& task : plan_.stages[s].tasks) use(task.op);
      for (const size_t op : plan_.stages[s].ops) {
        use(op);
        made[static_cast<size_t>(program_.ops[op].outputs[0])] = s;
      }
    }
    used[static_cast<size_t>(program_.logits())] = plan_.stages.size();
    plan_.slot_of.assign(program_.values.size(), -1);
    std::vector<op::ValueId> living;
    std::vector<int> free;
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      std::erase_if(living, [&](op::ValueId id) {
        const auto value = static_cast<size_t>(id);
        const bool dead = std::max(used[value], made[value]) < s;
        if (dead) free.push_back(plan_.slot_of[value]);
        return dead;
      });
      for (const size_t op : plan_.stages[s].ops) {
        const op::ValueId id = program_.ops[op].outputs[0];
        plan_.slot_of[static_cast<size_t>(id)] = take_slot(free, program_.value(id).width);
        living.push_back(id);
      }
    }
  }

  int take_slot(std::vector<int>& free, int64_t width) {
    const auto fits = std::ranges::find_if(
        free, [&](int slot) { return plan_.slot_widths[static_cast<size_t>(slot)] == width; });
    if (fits == free.end()) {
      plan_.slot_widths.push_back(width);
      return static_cast<int>(plan_.slot_widths.size()) - 1;
    }
    const int slot = *fits;
    free.erase(fits);
    return slot;
  }

  const op::Program& program_;
  Plan plan_;
  Stage rows_;                 // being filled
  op::ValueId prepared_ = -1;  // what the columns hold
};

}  // namespace

Plan make_plan(const op::Program& program) {
  return Planner(program).make();
}

std::vector<int64_t> first_rows(const op::Program& program, const Step& step) {
  const auto last = static_cast<int64_t>(step.tokens.size()) - 1;
  std::vector<int64_t> out(program.values.size(), last);
  for (size_t i = 0; i < out.size(); ++i)
    if (step.observer != nullptr && step.observer->wants(static_cast<op::ValueId>(i))) out[i] = 0;
  out[static_cast<size_t>(program.logits())] = step.all_logits ? 0 : last;
  for (auto op = program.ops.rbegin(); op != program.ops.rend(); ++op) {
    int64_t first = last;
    for (const op::ValueId id : op->outputs) first = std::min(first, out[static_cast<size_t>(id)]);
    out[static_cast<size_t>(op->outputs[0])] = first;
    const bool attends = std::holds_alternative<op::Attention>(op->what);
    for (size_t i = 0; i < op->inputs.size(); ++i) {
      int64_t& needed = out[static_cast<size_t>(op->inputs[i])];
      needed = std::min(needed, attends && i > 0 ? 0 : first);  // the cache needs all
    }
  }
  return out;
}

}  // namespace lockstep::exec
