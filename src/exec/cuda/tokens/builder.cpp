#include <algorithm>
#include <optional>

#include "exec/cuda/kernels.h"
#include "exec/cuda/tokens/pass.h"
#include "exec/cuda/tokens/shared_by_heads.h"

namespace lockstep::exec::cuda {

// Turns stages into launches: what comes before and after a product on the same row joins its
// launch.
class TokenPass::Builder {
 public:
  Builder(TokenPass& pass, int multiprocessors)
      : pass_(pass), program_(pass.parts_.program), multiprocessors_(multiprocessors) {}

  bool build(const Plan& plan) {
    // Experts and latent attention take the way of prompts.
    for (const op::Op& op : program_.ops)
      if (is_of_experts(op.what) || std::holds_alternative<op::HeadParts>(op.what)) return false;
    for (const Stage& stage : plan.stages) {
      const bool done = stage.kind == Stage::Kind::kRows       ? add_rows(stage)
                        : stage.kind == Stage::Kind::kProducts ? add_products(stage)
                                                               : add_attention(stage.ops[0]);
      if (!done) return false;
    }
    if (!finish_products() || !launch_rows(rows_.size())) return false;
    int64_t width = 0;  // of the model
    for (const Launch& launch : pass_.launches_)
      if (const auto* call = std::get_if<TokenProducts>(&launch); call && call->norm_weight)
        width = std::max(width, call->columns);
    for (Launch& launch : pass_.launches_)
      if (auto* call = std::get_if<TokenProducts>(&launch)) call->wide = is_wide(width);
    return true;
  }

 private:
  using Task = Stage::Task;

  float* place(op::ValueId id) const { return pass_.buffers_.values[static_cast<size_t>(id)]; }

  // Tasks that follow the products at hand join them; the others wait for the stage after.
  bool add_rows(const Stage& stage) {
    for (const Task& task : stage.tasks) {
      if (rows_.empty() && products_ && task.kind == Task::Kind::kOp &&
          join_products(program_.ops[task.op]))
        continue;
      rows_.push_back(task);
    }
    return finish_products();
  }

  bool join_products(const op::Op& op) {
    TokenProducts& call = *products_;
    if (call.sum != nullptr) return false;
    const op::ValueId out = op.outputs[0];
    if (const auto* slice = std::get_if<op::Slice>(&op.what)) {
      if (op.inputs[0] != whole_ || slice->first != sliced_ || call.activated != nullptr ||
          call.scaled != nullptr || (sliced_ > 0 && call.count == kMostProducts))
        return false;
      if (sliced_ == 0) {
        call.count = 0;
        outs_.clear();
      }
      TokenProducts::Product product = whole_product_;
      const int64_t rows = program_.value(out).width;
      product.weight = rows_of(product.weight, sliced_, rows);
      if (product.bias != nullptr) product.bias += sliced_;
      product.out = place(out);
      call.products[call.count++] = product;
      outs_.push_back(out);
      sliced_ += rows;
      return true;
    }
    if (const auto* activate = std::get_if<op::Activate>(&op.what)) {
      if (activate->kind == op::Activate::Kind::kClampedSwish) return false;
      if (call.activated != nullptr || call.scaled != nullptr || op.inputs != outs_) return false;
      if (outs_.size() > 1 && call.products[0].weight.rows != call.products[1].weight.rows)
        return false;
      call.paired = outs_.size() > 1;
      call.activation =
          describe_task(pass_.parts_, {Task::Kind::kOp, index_of(op)}, pass_.buffers_, 1, 0).kind;
      call.activated = place(out);
      outs_ = {out};
      return true;
    }
    if (outs_.size() != 1) return false;
    if (const auto* scale = std::get_if<op::Scale>(&op.what)) {
      if (op.inputs[0] != outs_[0] || call.scaled != nullptr) return false;
      call.factor = static_cast<float>(scale->factor);
      call.scaled = place(out);
      outs_ = {out};
      return true;
    }
    if (std::holds_alternative<op::Add>(op.what)) {
      const bool first = op.inputs[0] == outs_[0], second = op.inputs[1] == outs_[0];
      if (first == second) return false;
      call.addend = place(op.inputs[first ? 1 : 0]);
      call.sum = place(out);
      return true;
    }
    return false;
  }

  size_t index_of(const op::Op& op) const { return static_cast<size_t>(&op - program_.ops.data()); }

  // Some rows of a weight.
  static WeightView rows_of(const WeightView& weight, int64_t first, int64_t rows) {
    WeightView out = weight;
    out.rows = rows;
    out.codes += first * weight.row_bytes[0];
    if (out.extra != nullptr) out.extra += first * weight.row_bytes[1];
    if (out.scales != nullptr) out.scales += first * weight.row_bytes[2];
    if (out.blocks != nullptr) out.blocks += first * weight.row_bytes[3];
    return out;
  }

  bool finish_products() {
    if (!products_) return true;
    const bool whole = sliced_ == 0 || sliced_ == whole_product_.weight.rows;
    if (!whole || !plan_products(*products_, multiprocessors_)) return false;
    pass_.launches_.push_back(*products_);
    products_.reset();
    return true;
  }

  bool add_products(const Stage& stage) {
    const op::ValueId input = program_.ops[stage.ops[0]].inputs[0];
    if (stage.ops.size() > static_cast<size_t>(kMostProducts)) return false;
    TokenProducts call;
    call.x = place(input);
    call.columns = program_.value(input).width;
    // The rows' last tasks: what makes the products' input.
    if (rows_.empty() || rows_.back().kind != Task::Kind::kPrepare) return false;
    rows_.pop_back();
    if (!rows_.empty() && rows_.back().kind == Task::Kind::kOp) {
      const op::Op& op = program_.ops[rows_.back().op];
      const auto* norm = std::get_if<op::Norm>(&op.what);
      if (norm != nullptr && op.outputs[0] == input && norm->group == call.columns) {
        const RowTask task = describe_task(pass_.parts_, rows_.back(), pass_.buffers_, 1, 0);
        call.x = task.a;
        call.norm_weight = task.weight;
        call.norm_bias = task.bias;
        call.normed = task.out;
        call.epsilon = task.factor;
        call.inverse_count = 1.0f / static_cast<float>(call.columns);
        call.layer_norm = norm->kind == op::Norm::Kind::kLayer;
        rows_.pop_back();
      }
    }
    if (!launch_rows(rows_.size())) return false;
    outs_.clear();
    for (const size_t index : stage.ops) {
      const op::Op& op = program_.ops[index];
      const auto& linear = std::get<op::Linear>(op.what);
      TokenProducts::Product& product = call.products[call.count++];
      product.weight = pass_.parts_.weights.matrix(linear.weight);
      if (linear.bias) product.bias = pass_.parts_.weights.vector(*linear.bias);
      product.out = place(op.outputs[0]);
      outs_.push_back(op.outputs[0]);
    }
    whole_ = outs_.size() == 1 ? outs_[0] : -1;
    whole_product_ = call.products[0];
    sliced_ = 0;
    products_ = call;
    return true;
  }

  // Norms of heads and rotations of q and k, then the cache: all that waits must be that.
  bool add_attention(size_t index) {
    const op::Op& op = program_.ops[index];
    TokenAttention call;
    call.attention = describe_attention(pass_.parts_, index, pass_.buffers_);
    call.attention.parts = pass_.attention_parts_;
    call.arrived = pass_.arrived_;
    if (!fits_token_attention(call.attention)) return false;
    struct Side {
      TokenAttention::Heads heads;
      op::ValueId value;  // before what is known so far
    };
    Side q{{}, op.inputs[0]}, k{{}, op.inputs[1]};
    std::optional<float> epsilon;  // the kernel has one for both, and one rotation
    std::optional<Rotation> rotation;
    for (auto task = rows_.rbegin(); task != rows_.rend(); ++task) {
      if (task->kind == Task::Kind::kAppend) continue;
      if (task->kind != Task::Kind::kOp) return false;
      const op::Op& before = program_.ops[task->op];
      Side* side = before.outputs[0] == q.value ? &q : before.outputs[0] == k.value ? &k : nullptr;
      if (side == nullptr) return false;
      const RowTask described = describe_task(pass_.parts_, *task, pass_.buffers_, 1, 0);
      if (const auto* norm = std::get_if<op::Norm>(&before.what)) {
        if (norm->kind != op::Norm::Kind::kRms || norm->group != call.attention.head_size ||
            norm->weight.columns != norm->group || side->heads.norm_weight != nullptr ||
            !take_shared<float>(epsilon, described.factor))
          return false;
        side->heads.norm_weight = described.weight;
        side->heads.normed = described.out;
        call.epsilon = described.factor;
      } else if (std::holds_alternative<op::Rope>(before.what) &&
                 side->heads.norm_weight == nullptr && side->heads.rotated == nullptr) {
        const Rotation own{described.cosines, described.sines, described.pairs, described.adjacent};
        if (!take_shared(rotation, own)) return false;
        side->heads.rotated = described.out;
        call.cosines = described.cosines;
        call.sines = described.sines;
        call.pairs = static_cast<int>(described.pairs);
        call.adjacent = described.adjacent;
      } else {
        return false;
      }
      side->value = before.inputs[0];
    }
    if ((q.heads.rotated == nullptr) != (k.heads.rotated == nullptr)) return false;
    q.heads.raw = place(q.value);
    k.heads.raw = place(k.value);
    call.q = q.heads;
    call.k = k.heads;
    call.v = place(op.inputs[2]);
    rows_.clear();
    if (auto* before = std::get_if<TokenProducts>(&pass_.launches_.back())) {
      const int room = std::min(multiprocessors_for(call.attention), multiprocessors_ / 8);
      if (!plan_products(*before, multiprocessors_ - room) &&
          !plan_products(*before, multiprocessors_))
        return false;
    }
    pass_.launches_.push_back(call);
    return true;
  }

  // What has no better place: embeddings and what follows them.
  bool launch_rows(size_t count) {
    RowsCall call;
    call.tokens = 1;
    call.state = pass_.buffers_.state;
    const auto flush = [&] {
      if (call.count > 0) pass_.launches_.push_back(call);
      call.count = 0;
    };
    for (size_t i = 0; i < count; ++i) {
      const Task& task = rows_[i];
      if (task.kind != Task::Kind::kOp) return false;
      const op::Op& op = program_.ops[task.op];
      if (std::holds_alternative<op::Embed>(op.what)) {
        flush();
        pass_.launches_.push_back(describe_embed(pass_.parts_, op, pass_.buffers_, 1, 0));
        continue;
      }
      if (call.count == kMostTasks) flush();
      call.tasks[call.count++] = describe_task(pass_.parts_, task, pass_.buffers_, 1, 0);
    }
    flush();
    rows_.clear();
    return true;
  }

  TokenPass& pass_;
  const op::Program& program_;
  int multiprocessors_;
  std::vector<Task> rows_;  // that wait for their stage
  std::optional<TokenProducts> products_;
  std::vector<op::ValueId> outs_;  // what the products at hand have come to
  op::ValueId whole_ = -1;         // the only product's, of which there may be slices
  TokenProducts::Product whole_product_;
  int64_t sliced_ = 0;
};

bool TokenPass::build(const Plan& plan, int multiprocessors) {
  return Builder(*this, multiprocessors).build(plan);
}

}  // namespace lockstep::exec::cuda
