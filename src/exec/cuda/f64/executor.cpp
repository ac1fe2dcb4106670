#include "exec/cuda/f64/executor.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/parallel.h"
#include "exec/cuda/executor.h"
#include "exec/cuda/f64/calls.h"
#include "exec/cuda/f64/op_calls.h"
#include "exec/cuda/row_tasks.h"
#include "exec/cuda/shared/stream.h"
#include "exec/f64/ops.h"
#include "exec/reference/experts.h"
#include "op/rope.h"

namespace lockstep::exec::cuda {
namespace {

// Of a weight that is decoded at a time: starting kernels for less costs more than the GPU's cache
// saves.
constexpr int64_t kDecodedBytes64 = 256 << 20;
// Of attention's scores at a time, where nobody asked for them.
constexpr int64_t kScoreBytes = 256 << 20;

// Weights as they lie in the file, by where they lie there.
class StoredWeights {
 public:
  static std::vector<const op::Weight*> of(const op::Op& op) {
    std::vector<const op::Weight*> out;
    if (const auto* embed = std::get_if<op::Embed>(&op.what)) out = {&embed->table};
    if (const auto* norm = std::get_if<op::Norm>(&op.what)) {
      out = {&norm->weight};
      if (norm->bias) out.push_back(&*norm->bias);
    }
    if (const auto* linear = std::get_if<op::Linear>(&op.what)) {
      out = {&linear->weight};
      if (linear->bias) out.push_back(&*linear->bias);
    }
    if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what)) {
      out = {&experts->weight};
      if (experts->bias) out.push_back(&*experts->bias);
    }
    if (const auto* attention = std::get_if<op::Attention>(&op.what);
        attention != nullptr && attention->sinks)
      out = {&*attention->sinks};
    return out;
  }

  explicit StoredWeights(const op::Program& program) {
    for (const op::Op& op : program.ops)
      for (const op::Weight* weight : of(op))
        if (!places_.contains(weight->data.data()))
          places_[weight->data.data()] = {weight, layout_.place(std::ssize(weight->data))};
  }
  int64_t bytes() const { return layout_.bytes(); }

  Result<void> upload() {
    LS_TRY(memory_, DeviceMemory::allocate(bytes()));
    for (const auto& [data, place] : places_)
      LS_TRY_VOID(check(cudaMemcpy(memory_.data() + place.second, data, place.first->data.size(),
                                   cudaMemcpyHostToDevice),
                        "cudaMemcpy of weights"));
    return {};
  }
  // A weight, or a part of it.
  const std::byte* find(const op::Weight& weight) const {
    const auto& [data, place] = *std::prev(places_.upper_bound(weight.data.data()));
    return memory_.data() + place.second + (weight.data.data() - data);
  }

 private:
  std::map<const std::byte*, std::pair<const op::Weight*, int64_t>> places_;
  Layout layout_;
  DeviceMemory memory_;
};

// Memory for values, which go and come in the order of one stream.
class Pool {
 public:
  Result<DeviceMemory> take(int64_t bytes) {
    const auto found = free_.lower_bound(bytes);
    if (found == free_.end() || found->first > 4 * bytes + (1 << 20))
      return DeviceMemory::allocate(bytes);
    DeviceMemory out = std::move(found->second);
    free_.erase(found);
    return out;
  }
  void give(DeviceMemory memory) {
    if (const int64_t bytes = memory.size_bytes(); bytes > 0)
      free_.emplace(bytes, std::move(memory));
  }

 private:
  std::multimap<int64_t, DeviceMemory> free_;
};

struct DeviceMatrix {
  int64_t rows = 0;
  int64_t columns = 0;
  DeviceMemory memory;
  int64_t first = 0;  // row

  const double* data() const { return memory.as<double>() + first * columns; }
  int64_t count() const { return rows * columns; }
};

// Cosines and sines of the rotations; layers share them.
struct Rotation {
  std::vector<double> frequencies;
  double magnitude = 1;
  DeviceMemory table;  // [2, rows, pairs]

  bool operator==(const Rotation& other) const {
    return frequencies == other.frequencies && magnitude == other.magnitude;
  }
};

struct DoubleCache {
  DeviceMemory k;
  DeviceMemory v;
};

class DoubleExecutor : public Executor {
 public:
  explicit DoubleExecutor(const op::Program& program) : Executor(program), weights_(program) {}

  Result<void> prepare() {
    int64_t cache_bytes = 0;
    int64_t widest = program().vocabulary;
    for (const op::Value& value : program().values) widest = std::max(widest, value.width);
    for (const op::Op& op : program().ops)
      if (const auto* attention = std::get_if<op::Attention>(&op.what))
        cache_bytes += (k_width(*attention) + v_width(*attention)) * program().context_length * 8;
    const int64_t values = 8 * step_tokens() * widest * 8 + kScoreBytes + 2 * kDecodedBytes64;
    LS_TRY_VOID(check_room(weights_.bytes() + values, cache_bytes, program().context_length, true));
    LS_TRY(stream_, Stream::create());
    LS_TRY_VOID(weights_.upload());
    last_use_.resize(program().values.size(), -1);
    for (size_t i = 0; i < program().ops.size(); ++i) {
      const op::Op& op = program().ops[i];
      for (const op::ValueId id : op.inputs)
        last_use_[static_cast<size_t>(id)] = static_cast<int64_t>(i);
      if (const auto* attention = std::get_if<op::Attention>(&op.what)) {
        DoubleCache cache;
        LS_TRY(cache.k, DeviceMemory::allocate(k_width(*attention) * program().context_length * 8));
        LS_TRY(cache.v, DeviceMemory::allocate(v_width(*attention) * program().context_length * 8));
        caches_.push_back(std::move(cache));
      }
      if (const auto* rope = std::get_if<op::Rope>(&op.what)) {
        Rotation rotation{op::rope_frequencies(*rope), op::rope_magnitude(*rope), {}};
        auto found = std::ranges::find(rotations_, rotation);
        if (found == rotations_.end()) {
          rotations_.push_back(std::move(rotation));
          found = rotations_.end() - 1;
        }
        rotation_of_[i] = static_cast<size_t>(found - rotations_.begin());
      }
    }
    return {};
  }

  DType dtype() const override { return DType::kF64; }
  bool same_bits_for_any_cut() const override { return true; }
  Precision precision() const override { return {"f64", "f64", "f64"}; }

 protected:
  Result<View> evaluate(const Step& step) override {
    values_.clear();
    values_.resize(program().values.size());
    auto out = evaluate_ops(step);
    // What is under way may still use the memory.
    cudaStreamSynchronize(stream_);
    if (!out.ok()) cudaGetLastError();
    values_.clear();
    return out;
  }

 private:
  static int64_t k_width(const op::Attention& a) { return a.kv_heads * a.head_size; }
  static int64_t v_width(const op::Attention& a) { return a.kv_heads * a.value_size; }
  static bool wants(const Step& step, op::ValueId id) {
    return step.observer != nullptr && step.observer->wants(id);
  }

  Result<View> evaluate_ops(const Step& step) {
    const auto count = static_cast<int64_t>(step.tokens.size());
    LS_TRY_VOID(prepare_rotations(count));
    attention_index_ = 0;
    for (size_t i = 0; i < program().ops.size(); ++i) {
      if (step.cancel != nullptr && *step.cancel) return error("{}", kCancelledMessage);
      const op::Op& op = program().ops[i];
      std::vector<DeviceMatrix*> inputs;
      for (const op::ValueId id : op.inputs) inputs.push_back(&values_[static_cast<size_t>(id)]);
      const bool last_op = i + 1 == program().ops.size();
      if (!step.all_logits &&
          (last_op || (op.outputs[0] == program().head && !wants(step, program().head)))) {
        inputs[0]->first += inputs[0]->rows - 1;
        inputs[0]->rows = 1;
      }
      const op::ValueId id = op.outputs[0];
      DeviceMatrix& out = values_[static_cast<size_t>(id)];
      out.rows = inputs.empty() ? count : inputs[0]->rows;
      out.columns = program().value(id).width;
      LS_TRY(out.memory, pool_.take(out.count() * 8));
      LS_TRY_VOID(run_op(step, i, inputs, out));
      LS_TRY_VOID(check(cudaGetLastError(), "starting a kernel"));
      if (wants(step, id)) LS_TRY_VOID(show(step, id, out.data(), {out.rows, out.columns}));
      if (const auto* attention = std::get_if<op::Attention>(&op.what))
        LS_TRY_VOID(show_scores(step, op, *attention, out.rows));
      for (const op::ValueId input : op.inputs)
        if (last_use_[static_cast<size_t>(input)] == static_cast<int64_t>(i))
          pool_.give(std::move(values_[static_cast<size_t>(input)].memory));
    }
    const DeviceMatrix& last = values_[static_cast<size_t>(program().logits())];
    LS_TRY_VOID(download(last.data(), last.count(), logits_));
    const std::vector<int64_t> shape = {last.rows, last.columns};
    pool_.give(std::move(values_[static_cast<size_t>(program().logits())].memory));
    return View{DType::kF64, logits_.data(), shape};
  }

  Result<void> run_op(const Step& step, size_t index, const std::vector<DeviceMatrix*>& inputs,
                      DeviceMatrix& out) {
    const op::Op& op = program().ops[index];
    double* to = out.memory.as<double>();
    const auto x = [&](size_t i) { return inputs[i]->data(); };
    if (const auto* embed = std::get_if<op::Embed>(&op.what)) return run(*embed, step, out);
    if (const auto* norm = std::get_if<op::Norm>(&op.what)) {
      LS_TRY(const float* weight, vector(norm->weight, vectors_[0]));
      const float* bias = nullptr;
      if (norm->bias) {
        LS_TRY(bias, vector(*norm->bias, vectors_[1]));
      }
      run_norm({.x = x(0),
                .weight = weight,
                .bias = bias,
                .out = to,
                .groups = out.count() / norm->group,
                .weights = norm->weight.columns / norm->group,
                .group = norm->group,
                .epsilon = norm->epsilon,
                .layer = norm->kind == op::Norm::Kind::kLayer},
               stream_);
      return {};
    }
    if (const auto* linear = std::get_if<op::Linear>(&op.what))
      return run(*linear, *inputs[0], out);
    if (const auto* slice = std::get_if<op::Slice>(&op.what))
      return check(
          cudaMemcpy2DAsync(to, bytes(out.columns), x(0) + slice->first, bytes(inputs[0]->columns),
                            bytes(out.columns), static_cast<size_t>(out.rows),
                            cudaMemcpyDeviceToDevice, stream_),
          "cudaMemcpy2DAsync");
    if (const auto* parts = std::get_if<op::HeadParts>(&op.what)) return run(*parts, inputs, out);
    if (const auto* rope = std::get_if<op::Rope>(&op.what)) {
      const Rotation& rotation = rotations_[rotation_of_.at(index)];
      const auto pairs = static_cast<int64_t>(rotation.frequencies.size());
      const auto* table = rotation.table.as<double>();
      run_rope({.x = x(0),
                .cosines = table,
                .sines = table + out.rows * pairs,
                .out = to,
                .rows = out.rows,
                .columns = out.columns,
                .head_size = rope->head_size,
                .pairs = pairs,
                .adjacent = rope->pairing == op::Rope::Pairing::kAdjacent},
               stream_);
      return {};
    }
    if (const auto* attention = std::get_if<op::Attention>(&op.what))
      return run(*attention, step, op, inputs, out);
    if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what))
      return run(*experts, *inputs[0], *inputs[1], out);
    if (is_of_experts(op.what)) return run_on_host(op.what, inputs, out);
    if (const auto* activate = std::get_if<op::Activate>(&op.what))
      run_activate(activate->kind, x(0), inputs.size() > 1 ? x(1) : nullptr, out.count(), to,
                   stream_);
    else if (std::holds_alternative<op::Add>(op.what))
      run_add(x(0), x(1), out.count(), to, stream_);
    else if (const auto* soft = std::get_if<op::SoftCap>(&op.what))
      run_soft_cap(x(0), soft->cap, out.count(), to, stream_);
    else
      run_scale(x(0), std::get<op::Scale>(op.what).factor, out.count(), to, stream_);
    return {};
  }

  static size_t bytes(int64_t numbers) { return static_cast<size_t>(numbers) * sizeof(double); }

  Result<float*> floats(DeviceMemory& memory, int64_t count) {
    if (memory.size_bytes() < count * 4) {
      pool_.give(std::move(memory));  // kernels may still read it
      memory = {};
      LS_TRY(memory, DeviceMemory::allocate(count * 4));
    }
    return memory.as<float>();
  }

  // A vector of the model, decoded.
  Result<const float*> vector(const op::Weight& weight, DeviceMemory& memory) {
    LS_TRY(float* out, floats(memory, padded_columns(weight.columns)));
    run_decode({.format = weight.format->format(),
                .blocks = weights_.find(weight),
                .rows = 1,
                .columns = weight.columns,
                .out = out},
               stream_);
    return out;
  }

  // Rows of heads lie one after another: a copy takes the part of all heads of all rows.
  Result<void> run(const op::HeadParts& parts, const std::vector<DeviceMatrix*>& inputs,
                   DeviceMatrix& out) {
    auto* to = out.memory.as<double>();
    const int64_t size = out.columns / parts.heads, rest = size - parts.width;
    const auto copy = [&](double* place, int64_t stride, const double* from, int64_t from_stride,
                          int64_t width, int64_t count) {
      return check(cudaMemcpy2DAsync(place, bytes(stride), from, bytes(from_stride), bytes(width),
                                     static_cast<size_t>(count), cudaMemcpyDeviceToDevice, stream_),
                   "cudaMemcpy2DAsync");
    };
    const int64_t all_heads = out.rows * parts.heads;
    LS_TRY_VOID(copy(to, size, inputs[0]->data() + parts.first, inputs[0]->columns / parts.heads,
                     parts.width, all_heads));
    if (rest == 0) return {};
    const double* y = inputs[1]->data();
    if (inputs[1]->columns != rest) return copy(to + parts.width, size, y, rest, rest, all_heads);
    for (int64_t head = 0; head < parts.heads; ++head)
      LS_TRY_VOID(copy(to + head * size + parts.width, out.columns, y, rest, rest, out.rows));
    return {};
  }

  Result<void> run(const op::Embed& embed, const Step& step, DeviceMatrix& out) {
    std::vector<int64_t> rows(step.tokens.begin(), step.tokens.end());
    if (embed.index == op::Embed::Index::kPosition)
      std::iota(rows.begin(), rows.end(), positions());
    const int64_t stride = padded_columns(out.columns);
    LS_TRY(DeviceMemory chosen, pool_.take(out.rows * 8));
    LS_TRY_VOID(check(cudaMemcpyAsync(chosen.data(), rows.data(), rows.size() * sizeof(int64_t),
                                      cudaMemcpyHostToDevice, stream_),
                      "cudaMemcpyAsync"));
    LS_TRY_VOID(check(cudaStreamSynchronize(stream_), "sending tokens"));
    LS_TRY(float* decoded, floats(decoded_, out.rows * stride));
    run_decode({.format = embed.table.format->format(),
                .blocks = weights_.find(embed.table),
                .rows = out.rows,
                .columns = out.columns,
                .chosen = chosen.as<int64_t>(),
                .out = decoded},
               stream_);
    run_widen(decoded, stride, out.rows, out.columns, out.memory.as<double>(), stream_);
    pool_.give(std::move(chosen));
    return {};
  }

  // In parts of the weight that are decoded one after another.
  Result<void> run(const op::Linear& linear, const DeviceMatrix& x, DeviceMatrix& out) {
    const op::Weight& weight = linear.weight;
    const int64_t columns = padded_columns(weight.columns);
    const double* rows = x.data();
    DeviceMemory padded;
    if (columns != weight.columns) {
      LS_TRY(padded, pool_.take(x.rows * columns * 8));
      cudaMemsetAsync(padded.data(), 0, bytes(x.rows * columns), stream_);
      cudaMemcpy2DAsync(padded.data(), bytes(columns), rows, bytes(weight.columns),
                        bytes(weight.columns), static_cast<size_t>(x.rows),
                        cudaMemcpyDeviceToDevice, stream_);
      rows = padded.as<double>();
    }
    const float* bias = nullptr;
    if (linear.bias) {
      LS_TRY(bias, vector(*linear.bias, vectors_[0]));
    }
    const int64_t part = std::clamp<int64_t>(kDecodedBytes64 / (columns * 4), 1, weight.rows);
    LS_TRY(float* decoded, floats(decoded_, part * columns));
    for (int64_t first = 0; first < weight.rows; first += part) {
      const int64_t count = std::min(part, weight.rows - first);
      run_decode({.format = weight.format->format(),
                  .blocks = weights_.find(weight) + first * weight.row_bytes(),
                  .rows = count,
                  .columns = weight.columns,
                  .out = decoded},
                 stream_);
      run_double_product({.w = decoded,
                          .w_rows = count,
                          .x = rows,
                          .x_rows = x.rows,
                          .columns = columns,
                          .bias = bias != nullptr ? bias + first : nullptr,
                          .out = out.memory.as<double>() + first,
                          .out_stride = out.columns},
                         stream_);
    }
    pool_.give(std::move(padded));
    return {};
  }

  // One expert after another, on the rows that chose it.
  Result<void> run(const op::ExpertLinear& all, const DeviceMatrix& x, const DeviceMatrix& choice,
                   DeviceMatrix& out) {
    reference::Matrix chosen(choice.rows, choice.columns);
    LS_TRY_VOID(download(choice.data(), choice.count(), chosen.values));
    const int64_t width = all.weight.columns;
    const auto copy = [&](double* to, const double* from, int64_t numbers) {
      return check(cudaMemcpyAsync(to, from, bytes(numbers), cudaMemcpyDeviceToDevice, stream_),
                   "cudaMemcpyAsync");
    };
    Result<void> done;
    reference::for_each_expert(all, chosen,
                               [&](const op::Linear& linear, std::span<const op::Slot> slots) {
                                 if (done.ok())
                                   done = run_expert(linear, slots, x, width, copy, out);
                               });
    return done;
  }

  template <class Copy>
  Result<void> run_expert(const op::Linear& linear, std::span<const op::Slot> slots,
                          const DeviceMatrix& x, int64_t width, const Copy& copy,
                          DeviceMatrix& out) {
    DeviceMatrix rows{std::ssize(slots), width, {}, 0};
    DeviceMatrix results{std::ssize(slots), linear.weight.rows, {}, 0};
    LS_TRY(rows.memory, pool_.take(rows.count() * 8));
    LS_TRY(results.memory, pool_.take(results.count() * 8));
    for (size_t i = 0; i < slots.size(); ++i)
      LS_TRY_VOID(copy(
          rows.memory.template as<double>() + static_cast<int64_t>(i) * width,
          x.data() + slots[i].token * x.columns + (x.columns == width ? 0 : slots[i].slot * width),
          width));
    LS_TRY_VOID(run(linear, rows, results));
    for (size_t i = 0; i < slots.size(); ++i)
      LS_TRY_VOID(copy(out.memory.template as<double>() + slots[i].token * out.columns +
                           slots[i].slot * results.columns,
                       results.data() + static_cast<int64_t>(i) * results.columns,
                       results.columns));
    pool_.give(std::move(rows.memory));
    pool_.give(std::move(results.memory));
    return {};
  }

  // Routing takes next to no time: the host does it, with the bits of the CPU.
  Result<void> run_on_host(const op::What& what, const std::vector<DeviceMatrix*>& inputs,
                           DeviceMatrix& out) {
    std::vector<reference::Matrix> matrices;
    for (const DeviceMatrix* input : inputs) {
      matrices.emplace_back(input->rows, input->columns);
      LS_TRY_VOID(download(input->data(), input->count(), matrices.back().values));
    }
    std::vector<const reference::Matrix*> pointers;
    for (const reference::Matrix& matrix : matrices) pointers.push_back(&matrix);
    const reference::Matrix result =
        f64::evaluate(what, pointers, out.columns, {}, available_cores());
    LS_TRY_VOID(check(cudaMemcpyAsync(out.memory.data(), result.values.data(), bytes(out.count()),
                                      cudaMemcpyHostToDevice, stream_),
                      "cudaMemcpyAsync"));
    return check(cudaStreamSynchronize(stream_), "sending what the host computed");
  }

  Result<void> run(const op::Attention& attention, const Step& step, const op::Op& op,
                   const std::vector<DeviceMatrix*>& inputs, DeviceMatrix& out) {
    DoubleCache& cache = caches_[attention_index_++];
    const auto append = [&](const DeviceMatrix& from, DeviceMemory& to) {
      return check(cudaMemcpyAsync(to.as<double>() + positions() * from.columns, from.data(),
                                   bytes(from.count()), cudaMemcpyDeviceToDevice, stream_),
                   "cudaMemcpyAsync");
    };
    LS_TRY_VOID(append(*inputs[1], cache.k));
    LS_TRY_VOID(append(*inputs[2], cache.v));
    const bool wanted = wants(step, op.outputs[1]) || wants(step, op.outputs[2]);
    const int64_t seen = positions() + out.rows;
    const int64_t of_a_row = attention.heads * seen * 8;
    const int64_t part =
        wanted ? out.rows : std::clamp<int64_t>(kScoreBytes / of_a_row, 1, out.rows);
    LS_TRY(scores_, pool_.take(part * of_a_row));
    if (wanted) {
      LS_TRY(probs_, pool_.take(part * of_a_row));
    }
    const float* sinks = nullptr;
    if (attention.sinks) {
      LS_TRY(sinks, vector(*attention.sinks, vectors_[0]));
    }
    for (int64_t first = 0; first < out.rows; first += part)
      run_attention({.q = inputs[0]->data() + first * inputs[0]->columns,
                     .k = cache.k.as<double>(),
                     .v = cache.v.as<double>(),
                     .scores = scores_.as<double>(),
                     .probs = (wanted ? probs_ : scores_).as<double>(),
                     .out = out.memory.as<double>() + first * out.columns,
                     .rows = std::min(part, out.rows - first),
                     .first_position = positions() + first,
                     .positions = seen,
                     .heads = attention.heads,
                     .kv_heads = attention.kv_heads,
                     .head_size = attention.head_size,
                     .value_size = attention.value_size,
                     .scale = attention.scale,
                     .soft_cap = attention.soft_cap,
                     .window = attention.window,
                     .sinks = sinks},
                    stream_);
    return {};
  }

  Result<void> show_scores(const Step& step, const op::Op& op, const op::Attention& attention,
                           int64_t rows) {
    const std::vector<int64_t> shape = {attention.heads, rows, positions() + rows};
    LS_TRY_VOID(show(step, op.outputs[1], scores_.as<double>(), shape));
    LS_TRY_VOID(show(step, op.outputs[2], probs_.as<double>(), shape));
    pool_.give(std::exchange(scores_, {}));
    pool_.give(std::exchange(probs_, {}));
    return {};
  }

  // Angles are the host's, so that they are those of the CPU.
  Result<void> prepare_rotations(int64_t rows) {
    for (Rotation& rotation : rotations_) {
      const auto pairs = static_cast<int64_t>(rotation.frequencies.size());
      std::vector<double> table(static_cast<size_t>(2 * rows * pairs));
      parallel_rows(rows, 20 * pairs, available_cores(), [&](int64_t t) {
        for (int64_t pair = 0; pair < pairs; ++pair) {
          const double angle = static_cast<double>(positions() + t) *
                               rotation.frequencies[static_cast<size_t>(pair)];
          const auto place = static_cast<size_t>(t * pairs + pair);
          table[place] = std::cos(angle) * rotation.magnitude;
          table[place + static_cast<size_t>(rows * pairs)] = std::sin(angle) * rotation.magnitude;
        }
      });
      if (rotation.table.size_bytes() < std::ssize(table) * 8) {
        rotation.table = {};
        LS_TRY(rotation.table, DeviceMemory::allocate(std::ssize(table) * 8));
      }
      LS_TRY_VOID(
          check(cudaMemcpyAsync(rotation.table.data(), table.data(), table.size() * sizeof(double),
                                cudaMemcpyHostToDevice, stream_),
                "cudaMemcpyAsync"));
      LS_TRY_VOID(check(cudaStreamSynchronize(stream_), "sending angles"));
    }
    return {};
  }

  Result<void> download(const double* from, int64_t count, std::vector<double>& to) {
    to.resize(static_cast<size_t>(count));
    LS_TRY_VOID(
        check(cudaMemcpyAsync(to.data(), from, bytes(count), cudaMemcpyDeviceToHost, stream_),
              "cudaMemcpyAsync"));
    return check(cudaStreamSynchronize(stream_), "computing on the GPU");
  }

  Result<void> show(const Step& step, op::ValueId id, const double* from,
                    const std::vector<int64_t>& shape) {
    if (!wants(step, id)) return {};
    const int64_t count =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    LS_TRY_VOID(download(from, count, shown_));
    step.observer->see(id, {DType::kF64, shown_.data(), shape});
    return {};
  }

  Stream stream_;
  StoredWeights weights_;
  Pool pool_;
  std::vector<DoubleCache> caches_;  // one an Attention op, in order
  size_t attention_index_ = 0;
  std::vector<Rotation> rotations_;
  std::map<size_t, size_t> rotation_of_;  // by op
  std::vector<int64_t> last_use_;         // by value: index of the last op that reads it
  std::vector<DeviceMatrix> values_;
  DeviceMemory scores_;  // of the attention that ran last
  DeviceMemory probs_;
  DeviceMemory decoded_;
  DeviceMemory vectors_[2];
  std::vector<double> shown_;
  std::vector<double> logits_;
};

}  // namespace

Result<std::unique_ptr<Executor>> create_reference(const op::Program& program) {
  LS_TRY_VOID(available());
  auto out = std::make_unique<DoubleExecutor>(program);
  LS_TRY_VOID(out->prepare());
  return out;
}

}  // namespace lockstep::exec::cuda
