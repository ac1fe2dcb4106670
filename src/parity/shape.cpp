#include "parity/shape.h"

#include <algorithm>
#include <set>

namespace lockstep::parity {

int64_t heads_of(const op::Program& program, op::ValueId id) {
  const op::Value& value = program.value(id);
  if (value.shape == op::Value::Shape::kScores) return value.width;
  for (const op::Op& op : program.ops) {
    const auto* attention = std::get_if<op::Attention>(&op.what);
    if (attention == nullptr) continue;
    // Before the rotation a value has the same heads.
    const auto is_source = [&](op::ValueId input) {
      if (input == id) return true;
      return std::ranges::any_of(program.ops, [&](const op::Op& rope) {
        return std::holds_alternative<op::Rope>(rope.what) && rope.outputs[0] == input &&
               rope.inputs[0] == id;
      });
    };
    if (is_source(op.inputs[0]) || op.outputs[0] == id) return attention->heads;
    if (is_source(op.inputs[1]) || is_source(op.inputs[2])) return attention->kv_heads;
  }
  return 0;
}

namespace {

const SideJudgement& judgement(const CheckpointResult& result, bool of_suspect) {
  return of_suspect ? result.suspect : result.reference;
}

}  // namespace

void find_shape(const Scope& scope, const CompareOptions& options, int threads, Comparison& out) {
  if (!out.first_defect || out.first_defect->choice) return;
  Defect& defect = *out.first_defect;
  const auto id = scope.ids.find(defect.checkpoint);
  if (defect.side == Side::kUndetermined || id == scope.ids.end()) return;
  const bool of_suspect = defect.side != Side::kReference;
  const SideScope& side = of_suspect ? scope.suspect : scope.reference;
  const auto result =
      std::ranges::find(out.checkpoints, defect.checkpoint, &CheckpointResult::name);
  if (!side.judged() || judgement(*result, of_suspect).judged == 0) return;

  const op::Program& program = side.forwards.front().program;
  Replay replay(side.forwards.front(), side.precision, *side.trace, side.tokens,
                options.checkpoints, threads, options.products());
  defect.after = replay.starts_after(id->second, defect.position);
  ErrorShape shape;
  shape.rows = judgement(*result, of_suspect).judged;
  shape.positions = judgement(*result, of_suspect).defects;
  const auto wrong = replay.wrong_elements(id->second, shape.positions);
  if (wrong.empty()) return;
  const op::Value& value = program.value(id->second);
  const bool scores = value.shape == op::Value::Shape::kScores;
  const int64_t width = std::min(value.width, side.trace->checkpoint(value.name)->width);
  shape.heads = heads_of(program, id->second);
  shape.elements = scores ? value.width * (shape.positions.front() + 1) : width;
  shape.wrong_elements = static_cast<int64_t>(wrong.front().size());
  std::set<int64_t> heads;
  for (size_t i = 0; i < wrong.size(); ++i) {
    std::set<int64_t> columns;
    for (const auto& [line, column] : wrong[i]) {
      columns.insert(column);
      if (shape.heads > 0) heads.insert(scores ? line : column / (value.width / shape.heads));
    }
    if (i == 0) shape.columns.assign(columns.begin(), columns.end());
    shape.same_everywhere =
        (i == 0 || shape.same_everywhere) && std::ranges::equal(columns, shape.columns);
  }
  shape.wrong_heads.assign(heads.begin(), heads.end());
  defect.shape = std::move(shape);
}

}  // namespace lockstep::parity
