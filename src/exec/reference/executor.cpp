#include "exec/reference/executor.h"

#include <algorithm>
#include <numeric>

#include "base/memory.h"
#include "base/notice.h"
#include "base/parallel.h"
#include "exec/cuda/executor.h"
#include "exec/cuda/f64/executor.h"
#include "exec/f64/ops.h"

namespace lockstep::exec::reference {
namespace {

// Keys and values of one layer: [context, kv_heads * size] each, of which the first `rows` count.
struct LayerCache {
  Matrix k;
  Matrix v;
};

class ReferenceExecutor : public Executor {
 public:
  ReferenceExecutor(const op::Program& program, int threads)
      : Executor(program), threads_(threads) {
    for (const op::Op& op : program.ops)
      if (const auto* attention = std::get_if<op::Attention>(&op.what)) {
        const int64_t k_width = attention->kv_heads * attention->head_size;
        const int64_t v_width = attention->kv_heads * attention->value_size;
        caches_.push_back(
            {Matrix(program.context_length, k_width), Matrix(program.context_length, v_width)});
      }
    // A value can go once its last reader has run.
    last_use_.resize(program.values.size(), -1);
    for (size_t i = 0; i < program.ops.size(); ++i)
      for (const op::ValueId id : program.ops[i].inputs)
        last_use_[static_cast<size_t>(id)] = static_cast<int64_t>(i);
  }

  DType dtype() const override { return DType::kF64; }
  bool same_bits_for_any_cut() const override { return true; }
  Precision precision() const override { return {"f64", "f64", "f64"}; }

 protected:
  Result<View> evaluate(const Step& step) override {
    std::vector<int64_t> rows(step.tokens.size());
    std::iota(rows.begin(), rows.end(), positions());
    const Place place{step.tokens, rows};
    std::vector<Matrix> values(program().values.size());
    size_t attention_index = 0;
    for (size_t i = 0; i < program().ops.size(); ++i) {
      if (step.cancel != nullptr && *step.cancel) return error("{}", kCancelledMessage);
      const op::Op& op = program().ops[i];
      std::vector<const Matrix*> inputs;
      for (const op::ValueId id : op.inputs) inputs.push_back(&values[static_cast<size_t>(id)]);
      Matrix last_row;
      const bool last_op = i + 1 == program().ops.size();
      if (!step.all_logits &&
          (last_op || (op.outputs[0] == program().head && !wants(step, program().head))))
        if (inputs[0]->rows > 1) inputs[0] = &(last_row = only_last_row(*inputs[0]));
      Scores scores;
      Scores* wanted_scores = nullptr;
      if (std::holds_alternative<op::Attention>(op.what)) {
        LayerCache& cache = caches_[attention_index++];
        append(cache.k, *inputs[1]);
        append(cache.v, *inputs[2]);
        inputs[1] = &cache.k;
        inputs[2] = &cache.v;
        if (wants(step, op.outputs[1]) || wants(step, op.outputs[2])) wanted_scores = &scores;
      }
      const op::ValueId id = op.outputs[0];
      Matrix& out = values[static_cast<size_t>(id)];
      out =
          f64::evaluate(op.what, inputs, program().value(id).width, place, threads_, wanted_scores);
      show(step, id, out, {out.rows, out.columns});
      if (wanted_scores != nullptr) {
        const auto count = static_cast<int64_t>(step.tokens.size());
        const std::vector<int64_t> shape = {scores.scores.rows / count, count,
                                            scores.scores.columns};
        show(step, op.outputs[1], scores.scores, shape);
        show(step, op.outputs[2], scores.probs, shape);
      }
      for (const op::ValueId input : op.inputs)
        if (last_use_[static_cast<size_t>(input)] == static_cast<int64_t>(i))
          values[static_cast<size_t>(input)] = {};
    }
    logits_ = std::move(values[static_cast<size_t>(program().logits())]);
    return View{DType::kF64, logits_.values.data(), {logits_.rows, logits_.columns}};
  }

 private:
  static Matrix only_last_row(const Matrix& matrix) {
    Matrix row(1, matrix.columns);
    std::copy_n(matrix.row(matrix.rows - 1), matrix.columns, row.row(0));
    return row;
  }

  void append(Matrix& cache, const Matrix& rows) const {
    std::ranges::copy(rows.values, cache.row(positions()));
  }

  static bool wants(const Step& step, op::ValueId id) {
    return step.observer != nullptr && step.observer->wants(id);
  }

  static void show(const Step& step, op::ValueId id, const Matrix& matrix,
                   const std::vector<int64_t>& shape) {
    if (wants(step, id)) step.observer->see(id, {DType::kF64, matrix.values.data(), shape});
  }

  int threads_;
  std::vector<LayerCache> caches_;  // one an Attention op, in order
  std::vector<int64_t> last_use_;   // by value: index of the last op that reads it
  Matrix logits_;
};

}  // namespace

Result<std::unique_ptr<Executor>> create(const op::Program& program, const Options& options) {
  // Multiplications a token below which the GPU's start takes longer than it saves.
  constexpr int64_t kWorthAGpu = 100'000'000;
  int64_t products = 0;
  for (const op::Op& op : program.ops) {
    const int64_t width = program.value(op.outputs[0]).width;
    if (const auto* linear = std::get_if<op::Linear>(&op.what))
      products += width * linear->weight.columns;
    if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what))
      products += width * experts->weight.columns;
  }
  if (products < kWorthAGpu || !cuda::available().ok()) return create_on_cpu(program, options);
  auto made = cuda::create_reference(program);
  if (made.ok()) return made;
  notice("the reference executor runs on the CPU: {}\n", made.error().message);
  return create_on_cpu(program, options);
}

Result<std::unique_ptr<Executor>> create_on_cpu(const op::Program& program,
                                                const Options& options) {
  int64_t cache_bytes = 0;
  for (const op::Op& op : program.ops)
    if (const auto* attention = std::get_if<op::Attention>(&op.what))
      cache_bytes += attention->kv_heads * (attention->head_size + attention->value_size) *
                     program.context_length * static_cast<int64_t>(sizeof(double));
  if (const int64_t available = available_memory_bytes(); cache_bytes > available)
    return error("the KV cache for {} positions needs {:.1f} GB, {:.1f} GB are free; try --ctx {}",
                 program.context_length, static_cast<double>(cache_bytes) / 1e9,
                 static_cast<double>(available) / 1e9,
                 available / (cache_bytes / program.context_length));
  // Every step needs the same room again.
  keep_freed_memory();
  const int threads = options.threads > 0 ? options.threads : available_cores();
  return std::make_unique<ReferenceExecutor>(program, threads);
}

}  // namespace lockstep::exec::reference
