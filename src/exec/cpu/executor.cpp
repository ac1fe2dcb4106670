#include "exec/cpu/executor.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "base/memory.h"
#include "base/parallel.h"
#include "exec/cache_type.h"
#include "exec/cpu/cache.h"
#include "exec/cpu/columns.h"
#include "exec/cpu/expert_columns.h"
#include "exec/cpu/huge_vector.h"
#include "exec/cpu/kernels/panel_format.h"
#include "exec/cpu/kernels/targets.h"
#include "exec/cpu/pack.h"
#include "exec/cpu/row_ops.h"
#include "exec/cpu/team.h"
#include "exec/cpu/weights.h"
#include "exec/plan.h"
#include "exec/rope_table.h"

namespace lockstep::exec::cpu {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

class CpuExecutor : public Executor {
 public:
  CpuExecutor(const op::Program& program, const Kernels& kernels, Weights weights,
              std::vector<Cache> caches, int threads, bool pin, bool half_cache)
      : Executor(program),
        kernels_(kernels),
        weights_(std::move(weights)),
        caches_(std::move(caches)),
        half_cache_(half_cache),
        plan_(make_plan(program)),
        team_(threads, pin),
        scratch_(static_cast<size_t>(threads)),
        taken_(plan_.stages.size()),
        watched_(plan_.stages.size()) {
    cache_of_.resize(program.ops.size());
    rope_of_.resize(program.ops.size());
    size_t caches_seen = 0;
    for (size_t i = 0; i < program.ops.size(); ++i) {
      const op::Op& op = program.ops[i];
      if (std::holds_alternative<op::Attention>(op.what)) cache_of_[i] = caches_seen++;
      if (const auto* rope = std::get_if<op::Rope>(&op.what))
        rope_of_[i] = table_for(ropes_, *rope);
      if (const PanelWeight* weight = weights_.linear(i)) {
        (weight->takes_codes ? takes_codes_ : takes_floats_) = true;
        longest_column_ = std::max(longest_column_, weight->columns);
      }
      if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what)) {
        most_slots_ = std::max(most_slots_, program.value(op.inputs[1]).width);
        longest_expert_column_ = std::max(longest_expert_column_, experts->weight.columns);
      }
    }
    columns_.set_up(takes_codes_, takes_floats_);
    expert_columns_.set_up(takes_codes_, takes_floats_);
    slots_.resize(plan_.slot_widths.size());
  }

  DType dtype() const override { return DType::kF32; }
  bool same_bits_for_any_cut() const override { return true; }
  Precision precision() const override {
    return {"f32", takes_codes_ ? "i16" : "f32", half_cache_ ? "f16" : "f32"};
  }

 protected:
  Result<View> evaluate(const Step& step) override {
    step_ = &step;
    tokens_ = static_cast<int64_t>(step.tokens.size());
    for (size_t i = 0; i < slots_.size(); ++i)
      if (const auto size = static_cast<size_t>(tokens_ * plan_.slot_widths[i]);
          slots_[i].size() < size)
        slots_[i].resize(size);
    columns_.reserve(longest_column_, tokens_);
    expert_columns_.reserve(longest_expert_column_, tokens_ * most_slots_);
    for (RopeTable& table : ropes_) table.fill(positions(), tokens_);
    first_row_ = first_rows(program(), step);
    for (size_t s = 0; s < watched_.size(); ++s)
      watched_[s] = std::ranges::any_of(plan_.stages[s].ops, [&](size_t op) {
        return std::ranges::any_of(program().ops[op].outputs,
                                   [&](op::ValueId id) { return wants(id); });
      });
    for (auto& taken : taken_) taken = 0;
    last_stage_ = plan_.stages.size();
    team_.run([this](int member) { work(member); });
    if (last_stage_ < plan_.stages.size()) return error("{}", kCancelledMessage);
    const op::ValueId id = program().logits();
    const int64_t first = step.all_logits ? 0 : tokens_ - 1;
    return View{DType::kF32, row(id, first), {tokens_ - first, program().vocabulary}};
  }

 private:
  struct Scratch {
    HugeVector<std::byte> product;
    std::vector<std::byte> panels;
    std::vector<float> attention;
    std::vector<float> rows;  // of experts
  };

  int64_t first_row(size_t op) const {
    return first_row_[static_cast<size_t>(program().ops[op].outputs[0])];
  }

  float* row(op::ValueId id, int64_t index) {
    const auto slot = static_cast<size_t>(plan_.slot_of[static_cast<size_t>(id)]);
    return slots_[slot].data() + index * program().value(id).width;
  }

  bool wants(op::ValueId id) const {
    return step_->observer != nullptr && step_->observer->wants(id);
  }

  // Whether to leave stage `s` as it is: looked at before each piece of its work, so that a long
  // prompt on a large model ends within milliseconds. Whoever sees it first tells the others, who
  // must all leave after the same stage: a flag alone could be seen by one that still looks back at
  // the stage before.
  bool cancelled(size_t s) {
    if (step_->cancel == nullptr || !step_->cancel->load(std::memory_order_relaxed)) return false;
    last_stage_ = s;
    return true;
  }

  // All members run this side by side.
  void work(int member) {
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      const Stage& stage = plan_.stages[s];
      switch (stage.kind) {
        case Stage::Kind::kRows:
          run_rows(stage, s);
          break;
        case Stage::Kind::kProducts:
          run_products(stage, s, member);
          break;
        case Stage::Kind::kExperts:
          run_experts(stage, s, member);
          break;
        case Stage::Kind::kAttention:
          run_attention(stage.ops[0], s, member);
          break;
      }
      static_cast<void>(cancelled(s));
      team_.meet();
      if (last_stage_ <= s) return;
      if (!watched_[s]) continue;
      if (member == 0)
        for (const size_t op : stage.ops) show(op);
      team_.meet();  // nobody goes on and overwrites what is being shown
    }
  }

  // A tile after another, by whoever comes for it: one that is held up delays nobody by more.
  void run_rows(const Stage& stage, size_t s) {
    for (int64_t begin;
         (begin = taken_[s].fetch_add(1, std::memory_order_relaxed) * kTile) < tokens_;)
      run_rows(stage, begin, std::min(begin + kTile, tokens_));
  }

  void run_rows(const Stage& stage, int64_t begin, int64_t end) {
    for (const Stage::Task& task : stage.tasks) {
      const op::Op& op = program().ops[task.op];
      switch (task.kind) {
        case Stage::Task::Kind::kOp:
          for (int64_t t = std::max(begin, first_row(task.op)); t < end; ++t)
            evaluate_op(task.op, t);
          break;
        case Stage::Task::Kind::kPrepare:
          prepare(task.op, begin, end);
          break;
        case Stage::Task::Kind::kAppend:
          for (int64_t t = begin; t < end; ++t)
            caches_[cache_of_[task.op]].append(kernels_, positions() + t, row(op.inputs[1], t),
                                               row(op.inputs[2], t));
          break;
      }
    }
  }

  void evaluate_op(size_t index, int64_t t) {
    const op::Op& op = program().ops[index];
    const float* inputs[2] = {};
    for (size_t i = 0; i < op.inputs.size(); ++i) inputs[i] = row(op.inputs[i], t);
    RowCall call{.kernels = kernels_,
                 .token = step_->tokens[static_cast<size_t>(t)],
                 .position = positions() + t,
                 .row = t,
                 .inputs = std::span(inputs).first(op.inputs.size()),
                 .first_width = op.inputs.empty() ? 0 : program().value(op.inputs[0]).width,
                 .second_width = op.inputs.size() < 2 ? 0 : program().value(op.inputs[1]).width,
                 .out = row(op.outputs[0], t),
                 .width = program().value(op.outputs[0]).width};
    if (std::holds_alternative<op::Norm>(op.what)) call.weight = weights_.norm_weight(index).data();
    if (!weights_.norm_bias(index).empty()) call.bias = weights_.norm_bias(index).data();
    if (std::holds_alternative<op::Rope>(op.what)) call.rope = &ropes_[rope_of_[index]];
    evaluate_row(op.what, call);
  }

  void prepare(size_t op, int64_t begin, int64_t end) {
    const op::ValueId input = program().ops[op].inputs[0];
    const int64_t first = first_row_[static_cast<size_t>(input)];
    columns_.fill(kernels_, row(input, first), program().value(input).width, tokens_ - first,
                  std::max<int64_t>(begin - first, 0), end - first);
  }

  void run_products(const Stage& stage, size_t s, int member) {
    const op::ValueId input = program().ops[stage.ops[0]].inputs[0];
    const int64_t first = first_row_[static_cast<size_t>(input)];
    const Columns x = columns_.view(program().value(input).width, tokens_ - first);
    Scratch& scratch = scratch_[static_cast<size_t>(member)];
    const auto scratch_bytes = static_cast<size_t>(product_scratch_bytes(x.count));
    if (x.count > 1 && scratch.product.size() < scratch_bytes)
      scratch.product.resize(scratch_bytes);

    int64_t panels = 0;
    for (const size_t op : stage.ops) panels += weights_.linear(op)->panels;
    const int64_t piece = panels_of_a_piece(panels, x.count);
    int64_t pieces_before = 0;
    int64_t mine = taken_[s].fetch_add(1, std::memory_order_relaxed);
    for (const size_t op : stage.ops) {
      const PanelWeight& weight = *weights_.linear(op);
      const int64_t pieces = (weight.panels + piece - 1) / piece;
      for (; mine < pieces_before + pieces;
           mine = taken_[s].fetch_add(1, std::memory_order_relaxed)) {
        if (cancelled(s)) return;
        const int64_t begin = (mine - pieces_before) * piece;
        const op::ValueId out = program().ops[op].outputs[0];
        multiply(weight, 0, x, row(out, first), program().value(out).width, begin,
                 std::min(begin + piece, weight.panels), scratch);
      }
      pieces_before += pieces;
    }
  }

  // In generation a few pieces a thread, so that each reads long stretches of memory. In a prompt
  // many, and smaller ones where that leaves few: all threads should end together.
  int64_t panels_of_a_piece(int64_t panels, int64_t columns) const {
    const int64_t threads = team_.size();
    if (columns > 1) return panels < threads * 16 * kPanelGroup ? kPanelGroup / 2 : kPanelGroup;
    return std::max<int64_t>(1, panels / (threads * 4 * kPanelGroup)) * kPanelGroup;
  }

  // Panels of one expert (0 of a Linear).
  static void multiply(const PanelWeight& weight, int64_t expert, const Columns& x, float* out,
                       int64_t out_stride, int64_t begin, int64_t end, Scratch& scratch) {
    Product product{.panels = weight.panels_of(expert),
                    .panel_bytes = weight.panel_bytes,
                    .rows = weight.rows,
                    .x = &x,
                    .out = out,
                    .out_stride = out_stride,
                    .bias = weight.bias_of(expert),
                    .scratch = scratch.product.data()};
    if (weight.data != nullptr) return weight.kernel(product, begin, end);
    // Straight from the file: a few panels at a time, so that they stay in the cache.
    const op::Weight& source = weight.sources[static_cast<size_t>(expert)];
    for (int64_t panel = begin; panel < end; panel += kPanelGroup) {
      const int64_t count = std::min(end - panel, kPanelGroup);
      scratch.panels.resize(static_cast<size_t>(kPanelGroup * weight.panel_bytes));
      for (int64_t i = 0; i < count; ++i)
        pack_panel(source, panel + i, scratch.panels.data() + i * weight.panel_bytes);
      product.panels = scratch.panels.data() - panel * weight.panel_bytes;
      weight.kernel(product, panel, panel + count);
    }
  }

  // Only experts that somebody chose are read, each once for all of its tokens.
  void run_experts(const Stage& stage, size_t s, int member) {
    const op::Op& some = program().ops[stage.ops[0]];
    const int64_t length = std::get<op::ExpertLinear>(some.what).weight.columns;
    const int64_t x_width = program().value(some.inputs[0]).width;
    const int64_t used = program().value(some.inputs[1]).width;
    const int64_t first = first_row(stage.ops[0]);
    const int64_t tokens = tokens_ - first;
    Scratch& scratch = scratch_[static_cast<size_t>(member)];
    if (member == 0)
      expert_columns_.sort(row(some.inputs[1], first), tokens, used,
                           std::get<op::ExpertLinear>(some.what).experts);
    team_.meet();
    expert_columns_.fill(kernels_, row(some.inputs[0], first), length, x_width,
                         x_width == length ? 0 : length, member, team_.size(), scratch.rows);
    team_.meet();
    const auto scratch_bytes = static_cast<size_t>(product_scratch_bytes(tokens));
    if (tokens > 1 && scratch.product.size() < scratch_bytes) scratch.product.resize(scratch_bytes);

    int64_t pieces_before = 0;
    int64_t mine = taken_[s].fetch_add(1, std::memory_order_relaxed);
    for (const size_t op : stage.ops) {
      const PanelWeight& weight = *weights_.linear(op);
      // Few tokens share an expert: as in generation, a piece should read a long stretch of memory.
      const int64_t groups = (weight.panels + kPanelGroup - 1) / kPanelGroup;
      const int64_t share =
          std::ssize(expert_columns_.segments()) * groups / (int64_t{team_.size()} * 8);
      const int64_t piece = std::clamp<int64_t>(share, 1, groups) * kPanelGroup;
      const int64_t pieces = (weight.panels + piece - 1) / piece;
      for (const ExpertColumns::Segment& segment : expert_columns_.segments()) {
        const Columns x = expert_columns_.view(segment, length);
        for (; mine < pieces_before + pieces;
             mine = taken_[s].fetch_add(1, std::memory_order_relaxed)) {
          if (cancelled(s)) return;
          const int64_t begin = (mine - pieces_before) * piece;
          multiply_experts(op, weight, segment, x, first, begin,
                           std::min(begin + piece, weight.panels), scratch);
        }
        pieces_before += pieces;
      }
    }
  }

  void multiply_experts(size_t op, const PanelWeight& weight, const ExpertColumns::Segment& segment,
                        const Columns& x, int64_t first, int64_t begin, int64_t end,
                        Scratch& scratch) {
    const op::ValueId id = program().ops[op].outputs[0];
    const auto place = [&](int64_t column) {
      const auto [token, slot] = expert_columns_.slot(segment.first + column);
      return row(id, first + token) + slot * weight.rows;
    };
    if (segment.count == 1)
      return multiply(weight, segment.expert, x, place(0), 0, begin, end, scratch);
    // Its tokens do not lie side by side in the result.
    const int64_t first_of_rows = begin * kPanelRows;
    const int64_t rows = std::min(end * kPanelRows, weight.rows) - first_of_rows;
    scratch.rows.resize(static_cast<size_t>(segment.count * rows));
    multiply(weight, segment.expert, x, scratch.rows.data() - first_of_rows, rows, begin, end,
             scratch);
    for (int64_t column = 0; column < segment.count; ++column)
      std::copy_n(scratch.rows.data() + column * rows, rows, place(column) + first_of_rows);
  }

  void run_attention(size_t index, size_t s, int member) {
    const op::Op& op = program().ops[index];
    const auto& attention = std::get<op::Attention>(op.what);
    const Cache& cache = caches_[cache_of_[index]];
    const int64_t first = first_row(index);
    const int64_t rows = tokens_ - first;
    const int64_t group = attention.heads / attention.kv_heads;
    std::vector<float>& scratch = scratch_[static_cast<size_t>(member)].attention;
    const auto scratch_size =
        static_cast<size_t>(attention_scratch_floats(attention.head_size, attention.value_size));
    if (scratch.size() < scratch_size) scratch.resize(scratch_size);
    AttentionCall call{.head_size = attention.head_size,
                       .value_size = attention.value_size,
                       .scale = static_cast<float>(attention.scale),
                       .soft_cap = static_cast<float>(attention.soft_cap),
                       .window = attention.window,
                       .half_cache = cache.half(),
                       .heads = group,
                       .q_stride = program().value(op.inputs[0]).width,
                       .out_stride = program().value(op.outputs[0]).width,
                       .first_position = positions() + first,
                       .scratch = scratch.data()};
    const bool watched = wants(op.outputs[1]) || wants(op.outputs[2]);
    const int64_t seen = positions() + tokens_;
    if (watched) {
      if (member == 0) {
        const auto size = static_cast<size_t>(attention.heads * rows * seen);
        scores_.assign(size, kNever);
        probs_.assign(size, 0);
      }
      team_.meet();
    }
    constexpr int64_t kColumns = 4 * kTile;
    const int64_t columns = rows * group;
    const int64_t pieces = (columns + kColumns - 1) / kColumns;
    for (int64_t item; (item = taken_[s].fetch_add(1, std::memory_order_relaxed)) <
                       attention.kv_heads * pieces;) {
      if (cancelled(s)) return;
      const int64_t head = item / pieces;
      call.keys = cache.keys(head);
      call.values = cache.values(head);
      if (const float* sinks = weights_.sinks(index)) call.sinks = sinks + head * group;
      call.q = row(op.inputs[0], first) + head * group * attention.head_size;
      call.out = row(op.outputs[0], first) + head * group * attention.value_size;
      if (watched) {
        call.scores = scores_.data() + head * group * rows * seen;
        call.probs = probs_.data() + head * group * rows * seen;
        call.watched_rows = rows;
        call.watched_positions = seen;
      }
      // The last columns see the most positions: they come first, so that no thread ends late.
      const int64_t piece = pieces - 1 - item % pieces;
      kernels_.attention(call, piece * kColumns, std::min((piece + 1) * kColumns, columns));
    }
  }

  void show(size_t index) {
    const op::Op& op = program().ops[index];
    const op::ValueId id = op.outputs[0];
    if (wants(id)) {
      const int64_t first = id == program().logits() && !step_->all_logits ? tokens_ - 1 : 0;
      step_->observer->see(
          id, {DType::kF32, row(id, first), {tokens_ - first, program().value(id).width}});
    }
    if (!std::holds_alternative<op::Attention>(op.what)) return;
    const std::vector<int64_t> shape = {program().value(op.outputs[1]).width, tokens_,
                                        positions() + tokens_};
    if (wants(op.outputs[1]))
      step_->observer->see(op.outputs[1], {DType::kF32, scores_.data(), shape});
    if (wants(op.outputs[2]))
      step_->observer->see(op.outputs[2], {DType::kF32, probs_.data(), shape});
  }

  const Kernels& kernels_;
  Weights weights_;
  std::vector<Cache> caches_;  // one an Attention op, in order
  bool half_cache_;
  bool takes_codes_ = false;   // some product rounds its inputs to 16 bits
  bool takes_floats_ = false;  // some product does not
  int64_t longest_column_ = 0;
  int64_t longest_expert_column_ = 0, most_slots_ = 0;
  Plan plan_;
  Team team_;
  std::vector<Scratch> scratch_;             // a member each
  std::vector<std::atomic<int64_t>> taken_;  // pieces of a stage's work that somebody has taken
  std::vector<size_t> cache_of_, rope_of_;   // by op
  std::vector<RopeTable> ropes_;
  std::vector<HugeVector<float>> slots_;  // [tokens, width]
  ColumnBuffer columns_;                  // inputs of the coming products
  ExpertColumns expert_columns_;          // and of those with experts
  std::vector<float> scores_, probs_;     // [heads, rows, positions], where somebody watches

  // Of the current step.
  const Step* step_ = nullptr;
  int64_t tokens_ = 0;
  std::vector<int64_t> first_row_;      // by value: rows before it need not be computed
  std::vector<bool> watched_;           // by stage: somebody wants to see what it makes
  std::atomic<size_t> last_stage_ = 0;  // the step ends after it: cancelled
};

}  // namespace

Result<std::unique_ptr<Executor>> create(const op::Program& program, const Options& options) {
  LS_TRY(const Target* target, choose_target());
  LS_TRY(const bool half, has_half_cache(program, options));
  int64_t cache_bytes = 0;
  for (const op::Op& op : program.ops)
    if (const auto* attention = std::get_if<op::Attention>(&op.what))
      cache_bytes += Cache::bytes(*attention, program.context_length, half);
  if (const int64_t available = available_memory_bytes(); cache_bytes > available)
    return error("the KV cache for {} positions needs {:.1f} GB, {:.1f} GB are free; try --ctx {}",
                 program.context_length, static_cast<double>(cache_bytes) / 1e9,
                 static_cast<double>(available) / 1e9,
                 available / (cache_bytes / program.context_length));
  std::vector<Cache> caches;
  for (const op::Op& op : program.ops)
    if (const auto* attention = std::get_if<op::Attention>(&op.what)) {
      LS_TRY(Cache cache, Cache::create(*attention, program.context_length, half));
      caches.push_back(std::move(cache));
    }
  const int threads = options.threads > 0 ? options.threads : available_cores();
  LS_TRY(Weights weights, Weights::load(program, *target->kernels, options.repack, threads));
  return std::make_unique<CpuExecutor>(program, *target->kernels, std::move(weights),
                                       std::move(caches), threads, options.pin, half);
}

}  // namespace lockstep::exec::cpu
