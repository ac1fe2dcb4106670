#include "exec/cuda/row_tasks.h"

#include "base/check.h"

namespace lockstep::exec::cuda {
namespace {

class Describer {
 public:
  Describer(const Parts& parts, const Buffers& buffers, int64_t tokens, size_t op)
      : parts_(parts), buffers_(buffers), tokens_(tokens), op_(op) {}

  void take(op::ValueId id, const float*& data, int64_t& width) const {
    data = buffers_.values[static_cast<size_t>(id)];
    width = parts_.program.value(id).width;
  }

  void describe(const op::Norm& norm, RowTask& out) const {
    out.kind =
        norm.kind == op::Norm::Kind::kRms ? RowTask::Kind::kRmsNorm : RowTask::Kind::kLayerNorm;
    out.group = norm.group;
    out.factor = static_cast<float>(norm.epsilon);
    out.weight = parts_.weights.vector(norm.weight);
    out.own_weights = norm.weight.columns != norm.group;
    if (norm.bias) out.bias = parts_.weights.vector(*norm.bias);
  }
  void describe(const op::Slice& slice, RowTask& out) const {
    out.kind = RowTask::Kind::kSlice;
    out.group = slice.first;
  }
  void describe(const op::HeadParts& parts, RowTask& out) const {
    out.kind = RowTask::Kind::kHeadParts;
    out.group = parts.first;
    out.head_size = out.width / parts.heads;
    out.value_size = parts.width;
  }
  void describe(const op::Rope& rope, RowTask& out) const {
    out.kind = RowTask::Kind::kRope;
    out.pairs = rope.dims / 2;
    out.head_size = rope.head_size;
    out.adjacent = rope.pairing == op::Rope::Pairing::kAdjacent;
    out.cosines = buffers_.ropes[parts_.rope_of[op_]];
    out.sines = out.cosines + tokens_ * out.pairs;
  }
  void describe(const op::Activate& activate, RowTask& out) const {
    switch (activate.kind) {
      case op::Activate::Kind::kSilu:
        out.kind = RowTask::Kind::kSilu;
        break;
      case op::Activate::Kind::kGeluTanh:
        out.kind = RowTask::Kind::kGeluTanh;
        break;
      case op::Activate::Kind::kGeluErf:
        out.kind = RowTask::Kind::kGeluErf;
        break;
      case op::Activate::Kind::kClampedSwish:
        out.kind = RowTask::Kind::kClampedSwish;
        break;
    }
  }
  void describe(const op::Add&, RowTask& out) const { out.kind = RowTask::Kind::kAdd; }
  void describe(const op::Scale& scale, RowTask& out) const {
    out.kind = RowTask::Kind::kScale;
    out.factor = static_cast<float>(scale.factor);
  }
  void describe(const op::SoftCap& soft, RowTask& out) const {
    out.kind = RowTask::Kind::kSoftCap;
    out.factor = static_cast<float>(soft.cap);
  }
  template <class Other>
  void describe(const Other&, RowTask&) const {
    LS_CHECK(false, "an op with a kernel of its own");
  }

 private:
  const Parts& parts_;
  const Buffers& buffers_;
  int64_t tokens_;
  size_t op_;
};

}  // namespace

RowTask describe_task(const Parts& parts, const Stage::Task& task, const Buffers& buffers,
                      int64_t tokens, int64_t first_row) {
  const op::Op& op = parts.program.ops[task.op];
  const Describer describer(parts, buffers, tokens, task.op);
  RowTask out;
  if (task.kind == Stage::Task::Kind::kAppend) {
    const auto& attention = std::get<op::Attention>(op.what);
    out.kind = RowTask::Kind::kAppend;
    describer.take(op.inputs[1], out.a, out.a_width);
    describer.take(op.inputs[2], out.b, out.b_width);
    out.head_size = attention.head_size;
    out.value_size = attention.value_size;
    out.cache = parts.caches[task.op];
    return out;
  }
  describer.take(op.inputs[0], out.a, out.a_width);
  if (op.inputs.size() > 1) describer.take(op.inputs[1], out.b, out.b_width);
  out.out = buffers.values[static_cast<size_t>(op.outputs[0])];
  out.width = parts.program.value(op.outputs[0]).width;
  out.first_row = first_row;
  std::visit([&](const auto& what) { describer.describe(what, out); }, op.what);
  return out;
}

EmbedCall describe_embed(const Parts& parts, const op::Op& op, const Buffers& buffers,
                         int64_t tokens, int64_t first_row) {
  const auto& embed = std::get<op::Embed>(op.what);
  EmbedCall out;
  out.table = parts.weights.matrix(embed.table);
  if (embed.index == op::Embed::Index::kToken) out.token_ids = buffers.token_ids;
  out.state = buffers.state;
  out.out = buffers.values[static_cast<size_t>(op.outputs[0])];
  out.tokens = tokens;
  out.first_row = first_row;
  return out;
}

AttentionCall describe_attention(const Parts& parts, size_t index, const Buffers& buffers) {
  const op::Op& op = parts.program.ops[index];
  const auto& attention = std::get<op::Attention>(op.what);
  AttentionCall out;
  out.q = buffers.values[static_cast<size_t>(op.inputs[0])];
  out.out = buffers.values[static_cast<size_t>(op.outputs[0])];
  out.cache = parts.caches[index];
  out.heads = attention.heads;
  out.kv_heads = attention.kv_heads;
  out.head_size = attention.head_size;
  out.value_size = attention.value_size;
  out.scale = static_cast<float>(attention.scale);
  out.soft_cap = static_cast<float>(attention.soft_cap);
  out.window = attention.window;
  if (attention.sinks) out.sinks = parts.weights.vector(*attention.sinks);
  out.state = buffers.state;
  out.span = kAttentionSpan;
  return out;
}

}  // namespace lockstep::exec::cuda
