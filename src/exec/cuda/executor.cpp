#include "exec/cuda/executor.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "exec/cache_type.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/kv_cache.h"
#include "exec/cuda/prompts/expert_rows.h"
#include "exec/cuda/prompts/many_rows.h"
#include "exec/cuda/shared/stream.h"
#include "exec/cuda/tokens/pass.h"
#include "exec/cuda/watching.h"

namespace lockstep::exec::cuda {
namespace {

// Longest head that attention's kernels hold.
constexpr int64_t kLongestHead = 512;
// Of what is watched of a token, in pinned memory, twice.
constexpr int64_t kMostKept = 128 << 20;

class CudaExecutor : public Executor {
 public:
  CudaExecutor(const op::Program& program, Weights weights, std::unique_ptr<ManyRows> many_rows,
               KvCache cache, Stream stream, Stream copies)
      : Executor(program),
        stream_(std::move(stream)),
        weights_(std::move(weights)),
        many_rows_(std::move(many_rows)),
        cache_(std::move(cache)),
        plan_(make_plan(program)),
        parts_{program, weights_, {}, {}, {}},
        watching_(program, plan_, std::move(copies)) {
    parts_.caches.resize(program.ops.size());
    parts_.rope_of.resize(program.ops.size());
    for (size_t i = 0; i < program.ops.size(); ++i) {
      const op::Op& op = program.ops[i];
      if (std::holds_alternative<op::Attention>(op.what)) parts_.caches[i] = cache_.of(i);
      if (const auto* rope = std::get_if<op::Rope>(&op.what))
        parts_.rope_of[i] = table_for(parts_.ropes, *rope);
      if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what))
        rounds_rows_ = rounds_rows_ || experts->weight.format->block_values > 1;
      if (const auto* linear = std::get_if<op::Linear>(&op.what)) {
        (linear->weight.format->block_values > 1 ? takes_codes_ : takes_floats_) = true;
        longest_row_ = std::max(longest_row_, linear->weight.columns);
      }
    }
  }
  ~CudaExecutor() override { cudaStreamSynchronize(stream_); }

  // After the constructor, whose results it needs.
  Result<void> prepare_generation() {
    LS_TRY(token_pass_, TokenPass::create(parts_, plan_));
    return {};
  }

  int64_t step_tokens() const override { return 2048; }
  Result<std::vector<float>> read_back(const op::Weight& weight, int64_t first,
                                       int64_t rows) const override {
    return weights_.read_back(weight, first, rows);
  }
  DType dtype() const override { return DType::kF32; }
  Precision precision() const override {
    // In generation quantized weights meet 16-bit integers, in prompts halves, which are coarser.
    return {"f32", takes_codes_ || rounds_rows_ ? "f16" : "f32", cache_.half() ? "f16" : "f32"};
  }

 protected:
  Result<View> evaluate(const Step& step) override {
    step_ = &step;
    tokens_ = static_cast<int64_t>(step.tokens.size());
    const std::optional<Ahead> ahead = std::exchange(ahead_, std::nullopt);
    if (cancelled()) return error("{}", kCancelledMessage);
    // A token is over too soon to be cancelled midway.
    if (tokens_ == 1 && token_pass_ != nullptr) return evaluate_token(ahead);
    for (RopeTable& table : parts_.ropes) table.fill(positions(), tokens_);
    const bool watched = step.observer != nullptr;
    first_row_ = first_rows(program(), step);
    lean_first_row_ = first_row_;
    if (watched) {
      Step lean = step;
      lean.observer = nullptr;
      lean_first_row_ = first_rows(program(), lean);
    }
    LS_TRY_VOID(make_room());
    fill_inputs();
    LS_TRY_VOID(make_room_for_logits());
    LS_TRY_VOID(watching_.begin(step, positions(), false));
    // Generation that nobody watches is the same launches every time, but for what fill_inputs()
    // wrote: they are captured once.
    const int64_t splits = splits_for(positions() + tokens_);
    if (tokens_ == 1 && !watched)
      LS_TRY_VOID(graphs_.launch(splits, stream_, [&] { return launch_all(splits); }));
    else
      LS_TRY_VOID(launch_all(splits));
    LS_TRY_VOID(check(cudaStreamSynchronize(stream_), "running the step"));
    LS_TRY_VOID(watching_.show());
    const int64_t rows = step.all_logits ? tokens_ : 1;
    return View{DType::kF32, logits_.data(), {rows, program().vocabulary}};
  }

 private:
  // A pass that was started before it was asked for.
  struct Ahead {
    int pass;
    int64_t position;
    TokenId token;
  };

  // What a step's observer wants of a token beside its logits.
  struct Wanted {
    std::vector<op::ValueId> values;
    bool apart = false;  // scores, or too much: they are copied one by one, before the next token
  };
  Wanted wanted_of_token() const {
    Wanted out;
    int64_t bytes = 0;
    for (const op::Op& op : program().ops)
      for (const op::ValueId id : op.outputs) {
        if (id == program().logits() || !step_->observer->wants(id)) continue;
        const op::Value& value = program().value(id);
        out.values.push_back(id);
        out.apart = out.apart || value.shape == op::Value::Shape::kScores;
        bytes += 4 * value.width;
      }
    out.apart = out.apart || bytes > kMostKept;
    return out;
  }

  Result<View> evaluate_token(std::optional<Ahead> ahead) {
    Wanted wanted;
    if (step_->observer != nullptr) wanted = wanted_of_token();
    // An observer may leave steps out, and go on.
    const bool kept =
        step_->observer != nullptr && std::ranges::all_of(wanted.values, [&](op::ValueId id) {
          return std::ranges::find(token_pass_->kept(), id) != token_pass_->kept().end();
        });
    if (!kept) {
      const std::vector<op::ValueId> none;
      LS_TRY(const bool changed, token_pass_->keep(wanted.apart ? none : wanted.values, stream_));
      if (changed) ahead.reset();  // it did not bring what is wanted
    }
    int pass = 0;
    if (ahead && ahead->position == positions() && ahead->token == step_->tokens[0]) {
      pass = ahead->pass;
    } else {
      LS_TRY(pass, token_pass_->start(step_->tokens[0], positions(), stream_));
    }
    if (const int64_t next = positions() + 1; step_->greedy && !wanted.apart &&
                                              token_pass_->chooses() &&
                                              next < program().context_length) {
      LS_TRY(const int next_pass, token_pass_->start(TokenPass::kChosen, next, stream_));
      LS_TRY_VOID(token_pass_->wait(pass));
      ahead_ = Ahead{next_pass, next, token_pass_->chosen(pass)};
    }
    if (wanted.apart) {
      LS_TRY_VOID(watching_.begin(*step_, positions(), true));
      LS_TRY_VOID(copy_token());
    }
    LS_TRY_VOID(token_pass_->wait(pass));
    if (wanted.apart) LS_TRY_VOID(watching_.show());
    const View logits{DType::kF32, token_pass_->logits(pass), {1, program().vocabulary}};
    if (step_->observer != nullptr) show_token(pass, logits);
    return logits;
  }

  void show_token(int pass, const View& logits) const {
    op::Observer& observer = *step_->observer;
    for (size_t i = 0; i < token_pass_->kept().size(); ++i) {
      const op::ValueId id = token_pass_->kept()[i];
      if (!observer.wants(id)) continue;
      observer.see(id, {DType::kF32, token_pass_->kept(pass, i), {1, program().value(id).width}});
    }
    if (observer.wants(program().logits())) observer.see(program().logits(), logits);
  }

  // Starts copying what is watched of a token. Scores take each other's place.
  Result<void> copy_token() {
    const Buffers& buffers = token_pass_->buffers();
    std::vector<size_t> ops;
    const auto copy = [&] { return watching_.copy(std::exchange(ops, {}), buffers, stream_); };
    for (size_t index = 0; index < program().ops.size(); ++index) {
      const op::Op& op = program().ops[index];
      ops.push_back(index);
      if (!std::holds_alternative<op::Attention>(op.what) ||
          (!watching_.wants(op.outputs[1]) && !watching_.wants(op.outputs[2])))
        continue;
      AttentionCall call = describe_attention(parts_, index, buffers);
      call.tokens = 1;
      LS_TRY_VOID(watching_.place_scores(call, stream_));
      token_pass_->keep_scores(call, positions(), stream_);
      run_probs(call, stream_);
      LS_TRY_VOID(copy());
    }
    return copy();
  }

  // Buffers for as many tokens as the step has; they grow and stay. Of what is as wide as the
  // vocabulary there are as many rows as somebody asks for.
  Result<void> make_room() {
    int64_t wide_rows = 1;
    for (size_t i = 0; i < plan_.slot_of.size(); ++i)
      if (plan_.slot_of[i] >= 0 && program().values[i].width == program().vocabulary)
        wide_rows = std::max(wide_rows, tokens_ - first_row_[i]);
    if (tokens_ > room_ || wide_rows > wide_room_) LS_TRY_VOID(grow(wide_rows));
    buffers_.values.clear();
    for (const int slot : plan_.slot_of) {
      if (slot < 0) {
        buffers_.values.push_back(nullptr);
        continue;
      }
      const int64_t width = plan_.slot_widths[static_cast<size_t>(slot)];
      const int64_t missing = width == program().vocabulary ? tokens_ - wide_rows : 0;
      buffers_.values.push_back(activations_.as<float>(slots_[static_cast<size_t>(slot)]) -
                                missing * width);
    }
    return {};
  }

  Result<void> grow(int64_t wide_rows) {
    wide_rows = std::max(wide_rows, std::exchange(wide_room_, 0));
    const int64_t tokens = std::max(tokens_, std::exchange(room_, 0));  // until it is there again
    graphs_.clear();
    activations_ = {};
    inputs_ = {};
    buffers_ = {};
    const op::Program& p = program();
    Layout layout;
    slots_.clear();
    rope_places_.clear();
    for (const int64_t width : plan_.slot_widths)
      slots_.push_back(layout.place((width == p.vocabulary ? wide_rows : tokens) * width * 4));
    constexpr int64_t kPadding = 64;  // of a row for the products
    x_place_ = layout.place((longest_row_ + kPadding) * 4);
    high_place_ = layout.place(longest_row_);
    low_place_ = layout.place(longest_row_);
    scales_place_ = layout.place(longest_row_ / 8 + 4);
    sums_place_ = layout.place(longest_row_ / 4 + 8);
    int64_t part_floats = 0;
    for (const op::Op& op : p.ops)
      if (const auto* attention = std::get_if<op::Attention>(&op.what))
        part_floats = std::max(part_floats, attention->heads * splits_for(p.context_length) *
                                                (attention->value_size + 2));
    parts_place_ = layout.place(part_floats * 4);
    Layout inputs;
    state_place_ = inputs.place(sizeof(StepState));
    tokens_place_ = inputs.place(tokens * 4);
    for (const RopeTable& table : parts_.ropes)
      rope_places_.push_back(
          inputs.place(tokens * static_cast<int64_t>(table.frequencies.size()) * 2 * 4));
    inputs_place_ = layout.place(inputs.bytes());
    size_t free = 0, total = 0;
    LS_TRY_VOID(check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
    if (layout.bytes() > static_cast<int64_t>(free))
      return error(
          "a step of {} tokens needs {:.1f} GB of activations, {:.1f} GB of the GPU's "
          "memory are free; try {} tokens at a time",
          tokens, static_cast<double>(layout.bytes()) / 1e9, static_cast<double>(free) / 1e9,
          std::max<int64_t>(1, tokens * static_cast<int64_t>(free) / 2 / layout.bytes()));
    LS_TRY(activations_, DeviceMemory::allocate(layout.bytes()));
    LS_TRY(inputs_, PinnedMemory::allocate(inputs.bytes()));
    buffers_.state = activations_.as<StepState>(inputs_place_ + state_place_);
    buffers_.token_ids = activations_.as<int32_t>(inputs_place_ + tokens_place_);
    for (const int64_t place : rope_places_)
      buffers_.ropes.push_back(activations_.as<float>(inputs_place_ + place));
    room_ = tokens;
    wide_room_ = wide_rows;
    return {};
  }

  void fill_inputs() {
    inputs_.as<StepState>(state_place_)->first_position = positions();
    std::memcpy(inputs_.data() + tokens_place_, step_->tokens.data(), step_->tokens.size_bytes());
    for (size_t i = 0; i < parts_.ropes.size(); ++i) {
      auto* out = inputs_.as<float>(rope_places_[i]);
      std::ranges::copy(parts_.ropes[i].sines, std::ranges::copy(parts_.ropes[i].cosines, out).out);
    }
  }

  float* row(op::ValueId id, int64_t index) const {
    return buffers_.values[static_cast<size_t>(id)] + index * program().value(id).width;
  }
  int64_t first_row_of(op::ValueId id) const { return first_row_[static_cast<size_t>(id)]; }
  // Whether nothing but the last row is needed where nobody watches. That row is then computed on
  // its own always, so that watching leaves its bits as they are.
  bool last_alone(op::ValueId id) const {
    return lean_first_row_[static_cast<size_t>(id)] == tokens_ - 1;
  }
  // The same of all that a stage of products gives. (What it reads may be needed elsewhere.)
  bool last_alone(const Stage& products) const {
    return std::ranges::all_of(
        products.ops, [&](size_t index) { return last_alone(program().ops[index].outputs[0]); });
  }

  Codes codes() const {
    return {activations_.as<int8_t>(high_place_), activations_.as<int8_t>(low_place_),
            activations_.as<float>(scales_place_), activations_.as<int32_t>(sums_place_)};
  }

  RowTask prepare_task(op::ValueId input, int64_t index) const {
    RowTask out;
    out.kind = RowTask::Kind::kPrepare;
    out.a = row(input, index);
    out.a_width = program().value(input).width;
    out.width = (out.a_width + 7) / 8 * 8;
    if (takes_floats_) out.out = activations_.as<float>(x_place_);
    if (takes_codes_ && out.a_width % 32 == 0) out.codes = codes();
    return out;
  }

  // Rows that a stage of products takes together, from `first` on.
  struct Together {
    int64_t first, count;
  };
  Together together(const Stage& products) const {
    int64_t first = tokens_ - 1;
    for (const size_t index : products.ops)
      first = std::min(first, first_row_of(program().ops[index].outputs[0]));
    return {first, tokens_ > 1 ? tokens_ - (last_alone(products) ? 1 : 0) - first : 0};
  }

  // `next`: the stage after it, the products that a kPrepare is for.
  Result<RowTask> row_task(const Stage::Task& task, const Stage* next) {
    const op::Op& op = program().ops[task.op];
    if (task.kind != Stage::Task::Kind::kPrepare)
      return describe_task(
          parts_, task, buffers_, tokens_,
          task.kind == Stage::Task::Kind::kAppend ? 0 : first_row_of(op.outputs[0]));
    RowTask out = prepare_task(op.inputs[0], 0);
    if (tokens_ == 1) return out;
    const Together rows = together(*next);
    out.first_row = rows.count > 0 ? rows.first : tokens_;
    if (rows.count > 0) {
      std::vector<WeightView> weights;
      for (const size_t index : next->ops)
        weights.push_back(weights_.matrix(std::get<op::Linear>(program().ops[index].what).weight));
      LS_TRY(out.halves, many_rows_->place_of_rows(weights, tokens_ - rows.first, stream_));
    }
    if (out.halves.to == nullptr) out.first_row = tokens_;
    return out;
  }

  // Everything that a step does on the device, its inputs' way there and its results' way back.
  Result<void> launch_all(int64_t splits) {
    LS_TRY_VOID(check(
        cudaMemcpyAsync(activations_.data() + inputs_place_, inputs_.data(),
                        static_cast<size_t>(inputs_.size_bytes()), cudaMemcpyHostToDevice, stream_),
        "cudaMemcpyAsync of a step's inputs"));
    if (tokens_ > 1) {
      LS_TRY_VOID(many_rows_->begin(stream_));
      LS_TRY_VOID(expert_rows_.begin(stream_));
    }
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      const Stage& stage = plan_.stages[i];
      if (tokens_ > 1 && cancelled()) {
        cudaStreamSynchronize(stream_);
        return error("{}", kCancelledMessage);
      }
      LS_TRY_VOID(watching_.before(stage.ops, stream_));
      switch (stage.kind) {
        case Stage::Kind::kRows:
          LS_TRY_VOID(
              launch_rows(stage, i + 1 < plan_.stages.size() ? &plan_.stages[i + 1] : nullptr));
          break;
        case Stage::Kind::kProducts:
          LS_TRY_VOID(launch_products(stage));
          break;
        case Stage::Kind::kExperts:
          LS_TRY_VOID(launch_expert_products(stage));
          break;
        case Stage::Kind::kAttention:
          LS_TRY_VOID(launch_attention(stage.ops[0], splits));
          if (tokens_ > 1) LS_TRY_VOID(pace_.keep_close(stream_));
          break;
      }
      if (const cudaError_t status = cudaPeekAtLastError(); status != cudaSuccess) {
        const op::Op& op = program().ops[stage.ops.empty() ? stage.tasks[0].op : stage.ops[0]];
        return check(status, fmt::format("the kernel of {}", program().value(op.outputs[0]).name));
      }
      LS_TRY_VOID(watching_.copy(stage.ops, buffers_, stream_));
    }
    const int64_t first = step_->all_logits ? 0 : tokens_ - 1;
    return check(cudaMemcpyAsync(logits_.data(), row(program().logits(), first),
                                 static_cast<size_t>((tokens_ - first) * program().vocabulary) * 4,
                                 cudaMemcpyDeviceToHost, stream_),
                 "cudaMemcpyAsync of the logits");
  }

  void launch_own(const op::Op& op) const {
    launch_experts(parts_, op, buffers_, tokens_, first_row_of(op.outputs[0]), stream_);
  }

  Result<void> launch_expert_products(const Stage& stage) {
    const op::Op& some = program().ops[stage.ops[0]];
    const auto& experts = std::get<op::ExpertLinear>(some.what);
    const auto [first, many] = together(stage);
    const auto takes = [&](size_t index) {
      const auto& linear = std::get<op::ExpertLinear>(program().ops[index].what);
      return expert_rows_.takes(weights_.matrix(linear.weight));
    };
    if (many == 0 || !std::ranges::all_of(stage.ops, takes)) {
      for (const size_t index : stage.ops) launch_own(program().ops[index]);
      return {};
    }
    const op::ValueId input = some.inputs[0], choice = some.inputs[1];
    const ExpertRows::Inputs inputs{row(input, first),
                                    program().value(input).width != experts.weight.columns,
                                    choice,
                                    row(choice, first),
                                    many,
                                    program().value(choice).width,
                                    experts.experts};
    std::vector<ExpertRows::Product> products;
    for (const size_t index : stage.ops) {
      const auto& linear = std::get<op::ExpertLinear>(program().ops[index].what);
      products.push_back({weights_.matrix(linear.weight),
                          linear.bias ? weights_.vector(*linear.bias) : nullptr,
                          row(program().ops[index].outputs[0], first)});
    }
    LS_TRY_VOID(expert_rows_.multiply(inputs, products, stream_));
    if (!last_alone(stage)) return {};
    for (const size_t index : stage.ops)
      launch_experts(parts_, program().ops[index], buffers_, tokens_, tokens_ - 1, stream_);
    return {};
  }

  Result<void> launch_rows(const Stage& stage, const Stage* next) {
    RowsCall call;
    call.tokens = tokens_;
    call.state = buffers_.state;
    const auto flush = [&] {
      if (call.count > 0) run_rows(call, stream_);
      call.count = 0;
    };
    for (const Stage::Task& task : stage.tasks) {
      const op::Op& op = program().ops[task.op];
      if (task.kind == Stage::Task::Kind::kOp && std::holds_alternative<op::Embed>(op.what)) {
        flush();
        run_embed(describe_embed(parts_, op, buffers_, tokens_, first_row_of(op.outputs[0])),
                  stream_);
        continue;
      }
      if (task.kind == Stage::Task::Kind::kOp && is_of_experts(op.what)) {
        flush();
        launch_own(op);
        continue;
      }
      if (call.count == kMostTasks) flush();
      LS_TRY(call.tasks[call.count], row_task(task, next));
      ++call.count;
    }
    flush();
    return {};
  }

  Result<void> launch_products(const Stage& stage) {
    const op::ValueId input = program().ops[stage.ops[0]].inputs[0];
    const int64_t last = tokens_ - 1;
    if (const auto [first, many] = together(stage); many > 0) {
      std::vector<ManyRows::Product> products;
      for (const size_t index : stage.ops) {
        const auto& linear = std::get<op::Linear>(program().ops[index].what);
        products.push_back({weights_.matrix(linear.weight),
                            linear.bias ? weights_.vector(*linear.bias) : nullptr,
                            row(program().ops[index].outputs[0], first)});
      }
      LS_TRY_VOID(many_rows_->multiply(row(input, first), many, std::move(products), stream_));
    }
    if (!last_alone(stage)) return {};
    if (tokens_ > 1) {
      RowsCall prepare;
      prepare.tasks[0] = prepare_task(input, last);
      prepare.count = 1;
      prepare.tokens = 1;
      prepare.state = buffers_.state;
      run_rows(prepare, stream_);
    }
    MatvecCall call;
    call.x = activations_.as<float>(x_place_);
    call.codes = codes();
    for (const size_t index : stage.ops) {
      const auto& linear = std::get<op::Linear>(program().ops[index].what);
      const WeightView weight = weights_.matrix(linear.weight);
      if (call.count == kMostProducts ||
          (call.count > 0 && weight.format != call.products[0].weight.format)) {
        run_matvec(call, stream_);
        call.count = 0;
      }
      MatvecCall::Product& product = call.products[call.count++];
      product.weight = weight;
      product.bias = linear.bias ? weights_.vector(*linear.bias) : nullptr;
      product.out = row(program().ops[index].outputs[0], last);
    }
    run_matvec(call, stream_);
    return {};
  }

  Result<void> launch_attention(size_t index, int64_t splits) {
    const op::Op& op = program().ops[index];
    AttentionCall call = describe_attention(parts_, index, buffers_);
    call.tokens = tokens_;
    call.parts = activations_.as<float>(parts_place_);
    const bool alone = last_alone(op.outputs[0]);
    call.first_row = first_row_of(op.outputs[0]);
    call.rows = tokens_ - (alone ? 1 : 0) - call.first_row;
    const bool watched = watching_.wants(op.outputs[1]) || watching_.wants(op.outputs[2]);
    if (watched) LS_TRY_VOID(watching_.place_scores(call, stream_));
    if (call.rows > 0) run_attention(call, stream_);
    if (alone) {
      AttentionCall last = call;
      last.first_row = tokens_ - 1;
      last.rows = 1;
      last.splits = splits;
      run_attention(last, stream_);
    }
    if (watched) run_probs(call, stream_);
    return {};
  }

  bool cancelled() const { return step_->cancel != nullptr && *step_->cancel; }

  Result<void> make_room_for_logits() {
    const int64_t rows = step_->all_logits ? tokens_ : 1;
    const int64_t bytes = rows * program().vocabulary * 4;
    if (logits_.size_bytes() >= bytes) return {};
    graphs_.clear();
    logits_ = {};
    LS_TRY(logits_, PinnedMemory::allocate(bytes));
    return {};
  }

  Stream stream_;
  Weights weights_;
  std::unique_ptr<ManyRows> many_rows_;
  ExpertRows expert_rows_;
  KvCache cache_;
  Plan plan_;
  Parts parts_;
  std::unique_ptr<TokenPass> token_pass_;  // null: generation takes the way of prompts
  std::optional<Ahead> ahead_;
  bool takes_codes_ = false, takes_floats_ = false;
  bool rounds_rows_ = false;  // of experts
  int64_t longest_row_ = 0;

  int64_t room_ = 0;       // tokens that the buffers hold
  int64_t wide_room_ = 0;  // rows as wide as the vocabulary
  std::vector<int64_t> slots_;
  DeviceMemory activations_;
  Buffers buffers_;
  PinnedMemory inputs_;  // of a step, as they will lie on the device
  PinnedMemory logits_;  // [rows, vocabulary]
  std::vector<int64_t> rope_places_;
  int64_t x_place_ = 0, high_place_ = 0, low_place_ = 0, scales_place_ = 0, sums_place_ = 0;
  int64_t parts_place_ = 0, inputs_place_ = 0;
  int64_t state_place_ = 0, tokens_place_ = 0;  // within the inputs
  Graphs graphs_;
  Pace pace_;
  Watching watching_;

  // Of the current step.
  const Step* step_ = nullptr;
  int64_t tokens_ = 0;
  std::vector<int64_t> first_row_, lean_first_row_;  // by value
};

}  // namespace

Result<std::unique_ptr<Executor>> create(const op::Program& program, const Options& options) {
  LS_TRY_VOID(available());
  auto many_rows = std::make_unique<ManyRows>();  // starts while the weights are loaded
  LS_TRY(const bool half, has_half_cache(program, options));
  for (const op::Op& op : program.ops)
    if (const auto* attention = std::get_if<op::Attention>(&op.what);
        attention != nullptr &&
        std::max(attention->head_size, attention->value_size) > kLongestHead)
      return error("heads of {} numbers; at most {} are supported on the GPU",
                   std::max(attention->head_size, attention->value_size), kLongestHead);
  Weights weights = Weights::plan(program);
  KvCache cache = KvCache::plan(program, half);
  LS_TRY_VOID(check_room(weights.size_bytes(), cache.size_bytes(), program.context_length, half));
  LS_TRY_VOID(weights.load());
  LS_TRY_VOID(cache.allocate());
  LS_TRY(Stream stream, Stream::create());
  LS_TRY(Stream copies, Stream::create());
  auto executor =
      std::make_unique<CudaExecutor>(program, std::move(weights), std::move(many_rows),
                                     std::move(cache), std::move(stream), std::move(copies));
  LS_TRY_VOID(executor->prepare_generation());
  return executor;
}

}  // namespace lockstep::exec::cuda
