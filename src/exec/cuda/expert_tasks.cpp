// Ops of mixtures of experts as what their kernels take.
#include "exec/cuda/kernels.h"
#include "exec/cuda/row_tasks.h"

namespace lockstep::exec::cuda {

bool is_of_experts(const op::What& what) {
  return std::holds_alternative<op::Choose>(what) || std::holds_alternative<op::Weigh>(what) ||
         std::holds_alternative<op::ExpertLinear>(what) ||
         std::holds_alternative<op::MixExperts>(what) || std::holds_alternative<op::Gate>(what);
}

void launch_experts(const Parts& parts, const op::Op& op, const Buffers& buffers, int64_t tokens,
                    int64_t first_row, cudaStream_t stream) {
  const auto at = [&](op::ValueId id) { return buffers.values[static_cast<size_t>(id)]; };
  const auto width = [&](op::ValueId id) { return parts.program.value(id).width; };
  const op::ValueId out = op.outputs[0];
  if (const auto* choose = std::get_if<op::Choose>(&op.what)) {
    RouteCall call;
    call.router = at(op.inputs[0]);
    call.choice = at(out);
    if (choose->bias) call.bias = parts.weights.vector(*choose->bias);
    call.experts = width(op.inputs[0]);
    call.used = width(out);
    call.groups = choose->groups;
    call.groups_used = choose->groups_used;
    call.group_scores = choose->group_scores;
    call.sigmoid = choose->scoring == op::Scoring::kSigmoid;
    call.tokens = tokens;
    call.first_row = first_row;
    return run_route(call, stream);
  }
  if (const auto* weigh = std::get_if<op::Weigh>(&op.what)) {
    RouteCall call;
    call.router = at(op.inputs[0]);
    call.choice = at(op.inputs[1]);
    call.weights = at(out);
    call.experts = width(op.inputs[0]);
    call.used = width(out);
    call.sigmoid = weigh->scoring == op::Scoring::kSigmoid;
    call.normalize = weigh->normalize;
    call.scale = static_cast<float>(weigh->scale);
    call.tokens = tokens;
    call.first_row = first_row;
    return run_route(call, stream);
  }
  if (const auto* linear = std::get_if<op::ExpertLinear>(&op.what)) {
    ExpertsCall call;
    call.weight = parts.weights.matrix(linear->weight);
    call.rows = linear->rows();
    if (linear->bias) call.bias = parts.weights.vector(*linear->bias);
    call.x = at(op.inputs[0]);
    call.x_stride = width(op.inputs[0]);
    call.slot_stride = call.x_stride == linear->weight.columns ? 0 : linear->weight.columns;
    call.choice = at(op.inputs[1]);
    call.used = width(op.inputs[1]);
    call.out = at(out);
    call.tokens = tokens;
    call.first_row = first_row;
    return run_experts(call, stream);
  }
  const bool gate = std::holds_alternative<op::Gate>(op.what);
  MixCall call;
  call.weights = at(op.inputs[gate ? 1 : 0]);
  call.x = at(op.inputs[gate ? 0 : 1]);
  call.out = at(out);
  call.used = width(op.inputs[gate ? 1 : 0]);
  call.width = width(out);
  call.gate = gate;
  call.tokens = tokens;
  call.first_row = first_row;
  run_mix(call, stream);
}

}  // namespace lockstep::exec::cuda
