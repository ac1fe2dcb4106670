#include "engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include "op/experts.h"
#include "op/rope.h"
#include "parity/arithmetic.h"
#include "quant/decode.h"
#include "small_numbers.h"

namespace lockstep::engines {
namespace {

using Kind = Quirk::Kind;

template <class T>
struct Rows {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<T> values;  // [rows, columns]

  Rows() = default;
  Rows(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}
  T* row(int64_t r) { return values.data() + r * columns; }
  const T* row(int64_t r) const { return values.data() + r * columns; }
  std::span<const T> span(int64_t r, int64_t first, int64_t count) const {
    return {row(r) + first, static_cast<size_t>(count)};
  }
};

template <class T>
class HonestEngine : public exec::Executor {
 public:
  HonestEngine(const op::Program& program, const Style& style, std::span<const Quirk> quirks,
               const op::Deviations& deviations)
      : Executor(program),
        style_(style),
        quirks_(quirks.begin(), quirks.end()),
        deviations_(deviations) {}

  DType dtype() const override {
    return std::is_same_v<T, double> && !style_.shows_floats ? DType::kF64 : DType::kF32;
  }

  exec::Precision precision() const override { return {}; }  // the test says it

 protected:
  Result<View> evaluate(const exec::Step& step) override {
    count_ = static_cast<int64_t>(step.tokens.size());
    std::vector<Rows<T>> values(program().values.size());
    size_t layer = 0;
    tokens_.resize(static_cast<size_t>(positions()));
    tokens_.insert(tokens_.end(), step.tokens.begin(), step.tokens.end());
    for (size_t index = 0; index < program().ops.size(); ++index) {
      const op::Op& op = program().ops[index];
      const auto deviation = deviations_.find(index);
      deviation_ = deviation != deviations_.end() ? deviation->second : op::Deviation();
      std::vector<Rows<T>> inputs;
      for (const op::ValueId id : op.inputs) inputs.push_back(values[static_cast<size_t>(id)]);
      const op::ValueId id = op.outputs[0];
      const auto quirk = std::ranges::find(quirks_, id, &Quirk::value);
      quirk_ = quirk != quirks_.end() ? *quirk : Quirk();
      for (Rows<T>& input : inputs) alter_input(input);
      for (size_t i = 0; i < inputs.size(); ++i) deviate_input(index, i, inputs[i]);
      Rows<T>& out = values[static_cast<size_t>(id)];
      out = Rows<T>(count_, program().value(id).width);
      Rows<T> scores;
      Rows<T> probs;
      if (const auto* attention = std::get_if<op::Attention>(&op.what)) {
        if (caches_.size() <= layer) caches_.emplace_back();
        attend(*attention, inputs, caches_[layer++], out, scores, probs);
      } else {
        std::visit([&](const auto& what) { run(what, inputs, step.tokens, out); }, op.what);
      }
      deviate_output(index, inputs, out);
      // Experts are whole numbers in every engine.
      if (!std::holds_alternative<op::Choose>(op.what)) round(out);
      alter_output(out);
      show(step, id, out, {out.rows, out.columns});
      if (scores.rows > 0) {
        const std::vector<int64_t> shape = {scores.rows / count_, count_, scores.columns};
        show(step, op.outputs[1], scores, shape);
        show(step, op.outputs[2], probs, shape);
      }
    }
    logits_ = values[static_cast<size_t>(program().logits())];
    return View{std::is_same_v<T, double> ? DType::kF64 : DType::kF32,
                logits_.values.data(),
                {logits_.rows, logits_.columns}};
  }

 private:
  struct Cache {
    std::vector<std::vector<T>> k;  // by position
    std::vector<std::vector<T>> v;
  };

  static std::vector<T> weights(const op::Weight& weight, int64_t row) {
    std::vector<float> floats(static_cast<size_t>(weight.columns));
    quant::decode(weight.format->format(), weight.row(row), weight.columns, floats.data());
    return {floats.begin(), floats.end()};
  }

  // Of a matrix, where the engine rounds float weights itself.
  std::vector<T> matrix_row(const op::Weight& weight, int64_t row) {
    if (style_.weights.empty() || parity::is_quantized(weight)) return weights(weight, row);
    std::vector<T>& all = rounded_[weight.data.data()];
    const auto width = static_cast<size_t>(weight.columns);
    if (all.empty()) {
      for (int64_t r = 0; r < weight.rows; ++r)
        for (const T w : weights(weight, r)) all.push_back(w);
      round_numbers(std::span<T>(all), width, style_.weights);
    }
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(row) * width);
    return {first, first + weight.columns};
  }

  // A vector of the file: a norm's weight, or a bias.
  std::vector<T> vector(const op::Weight& weight) const {
    std::vector<T> out = weights(weight, 0);
    if (trace::find_dtype(style_.weights))
      round_numbers(std::span<T>(out), out.size(), style_.weights);
    return out;
  }

  T sum(const std::vector<T>& terms) const {
    return parity::add_up(std::span<const T>(terms), style_.order);
  }

  T dot(std::span<const T> a, std::span<const T> b) const {
    std::vector<T> terms(a.size());
    for (size_t i = 0; i < a.size(); ++i) terms[i] = factor(a[i]) * factor(b[i]);
    return sum(terms);
  }

  // Products of f16 numbers, in f16 all the way.
  T half_dot(std::span<const T> a, std::span<const T> b) const {
    std::vector<parity::Half> terms;
    for (size_t i = 0; i < a.size(); ++i)
      terms.push_back(parity::Half(static_cast<float>(a[i])) *
                      parity::Half(static_cast<float>(b[i])));
    return static_cast<T>(parity::add_up(std::span<const parity::Half>(terms), style_.order).value);
  }

  T factor(T x) const {
    if (style_.factors.empty()) return x;
    return static_cast<T>(to_tf32(static_cast<double>(x), style_.factors == "tf32cut"));
  }

  static void round_all(std::vector<T>& values, DType dtype) {
    for (T& value : values)
      value = static_cast<T>(parity::round_to(static_cast<double>(value), dtype));
  }

  void round(Rows<T>& out) const {
    if (style_.activations) round_all(out.values, *style_.activations);
  }

  void alter_input(Rows<T>& input) {
    if (quirk_.kind == Kind::kHalfInput) round_all(input.values, DType::kF16);
    if (quirk_.kind == Kind::kBfloatInput) round_all(input.values, DType::kBF16);
  }

  // Rows of all positions so far, by op and input; of results under kResult.
  static constexpr size_t kResult = 99;
  void remember(size_t op, size_t input, const Rows<T>& rows) {
    auto& all = history_[{op, input}];
    all.resize(static_cast<size_t>(positions()));
    for (int64_t t = 0; t < count_; ++t) all.emplace_back(rows.row(t), rows.row(t) + rows.columns);
  }

  // The row of another position, where it is there already.
  void recall(size_t op, size_t input, int64_t position, Rows<T>& rows, int64_t t) const {
    const auto& all = history_.at({op, input});
    if (position == op::Deviation::kZeros)
      std::fill_n(rows.row(t), rows.columns, T(0));
    else if (position < std::ssize(all))
      std::ranges::copy(all[static_cast<size_t>(position)], rows.row(t));
  }

  static void take_columns(const std::vector<int64_t>& columns, Rows<T>& rows) {
    if (columns.empty()) return;
    const Rows<T> before = rows;
    for (int64_t t = 0; t < rows.rows; ++t)
      for (int64_t c = 0; c < rows.columns; ++c) {
        const int64_t from = columns[static_cast<size_t>(c)];
        rows.row(t)[c] = from == op::Deviation::kZeros ? T(0) : before.row(t)[from];
      }
  }

  static void change_row(Rows<T>& rows, int64_t t,
                         const std::function<void(std::span<double>)>& change) {
    std::vector<double> row(rows.row(t), rows.row(t) + rows.columns);
    change(row);
    for (int64_t c = 0; c < rows.columns; ++c)
      rows.row(t)[c] = static_cast<T>(row[static_cast<size_t>(c)]);
  }

  void deviate_input(size_t op, size_t index, Rows<T>& input) {
    if (deviation_.reads) {
      remember(op, index, input);
      for (int64_t t = 0; t < count_; ++t)
        recall(op, index, deviation_.reads(index, positions() + t), input, t);
    }
    if (index == 0) take_columns(deviation_.input_columns, input);
    for (int64_t t = 0; deviation_.takes && t < count_; ++t)
      change_row(input, t, [&](std::span<double> row) { deviation_.takes(index, row); });
  }

  void make_row(const std::vector<Rows<T>>& inputs, int64_t t, Rows<T>& out) const {
    std::vector<std::vector<double>> numbers;
    for (const Rows<T>& input : inputs)
      numbers.emplace_back(input.row(t), input.row(t) + input.columns);
    const std::vector<std::span<const double>> rows(numbers.begin(), numbers.end());
    std::vector<double> made(static_cast<size_t>(out.columns));
    deviation_.row(rows, position_of(t), made);
    for (int64_t c = 0; c < out.columns; ++c)
      out.row(t)[c] = static_cast<T>(made[static_cast<size_t>(c)]);
  }

  void deviate_output(size_t op, const std::vector<Rows<T>>& inputs, Rows<T>& out) {
    if (deviation_.row)
      for (int64_t t = 0; t < count_; ++t) make_row(inputs, t, out);
    take_columns(deviation_.columns, out);
    for (T& value : out.values) value *= static_cast<T>(deviation_.factor);
    const T limit = static_cast<T>(deviation_.limit);
    if (limit > 0)
      for (T& value : out.values) value = std::clamp(value, -limit, limit);
    for (int64_t t = 0; deviation_.gives && t < count_; ++t) change_row(out, t, deviation_.gives);
    if (!deviation_.result_of) return;
    remember(op, kResult, out);
    for (int64_t t = 0; t < count_; ++t)
      recall(op, kResult, deviation_.result_of(positions() + t), out, t);
  }

  void alter_output(Rows<T>& out) {
    if (quirk_.kind == Kind::kBfloatOutput) round_all(out.values, DType::kBF16);
    const int64_t t = quirk_.position - positions();
    if (t < 0 || t >= count_) return;
    if (quirk_.kind == Kind::kNan)
      out.row(t)[out.columns / 2] = std::numeric_limits<T>::quiet_NaN();
    if (quirk_.kind == Kind::kInfinity)
      out.row(t)[out.columns / 2] = std::numeric_limits<T>::infinity();
  }

  using Inputs = std::vector<Rows<T>>;
  using Tokens = std::span<const exec::TokenId>;

  // What an op takes for the position of a row.
  int64_t position_of(int64_t t) const {
    const int64_t position = positions() + t;
    return deviation_.position ? deviation_.position(position) : position;
  }

  void run(const op::Embed& embed, const Inputs&, Tokens, Rows<T>& out) {
    for (int64_t t = 0; t < count_; ++t) {
      int64_t owner = positions() + t;
      if (deviation_.reads) owner = deviation_.reads(0, owner);
      int64_t row = position_of(t);
      if (embed.index == op::Embed::Index::kToken)
        row = tokens_[static_cast<size_t>(owner)] + deviation_.token_offset;
      row = (row + embed.table.rows) % embed.table.rows;
      std::ranges::copy(matrix_row(embed.table, row), out.row(t));
    }
  }

  void run(const op::Norm& norm, const Inputs& in, Tokens, Rows<T>& out) const {
    const std::vector<T> weight = vector(norm.weight);
    const std::vector<T> bias = norm.bias ? vector(*norm.bias) : std::vector<T>(weight.size());
    const T n = static_cast<T>(norm.group);
    for (int64_t t = 0; t < count_; ++t)
      for (int64_t first = 0; first < out.columns; first += norm.group) {
        std::vector<T> x(in[0].row(t) + first, in[0].row(t) + first + norm.group);
        if (norm.kind == op::Norm::Kind::kLayer) {
          const T mean = sum(x) / n;
          for (T& value : x) value -= mean;
        }
        std::vector<T> squares;
        for (const T value : x) squares.push_back(value * value);
        const T scale = 1 / std::sqrt(sum(squares) / n + static_cast<T>(norm.epsilon));
        for (size_t i = 0; i < x.size(); ++i)
          out.row(t)[first + static_cast<int64_t>(i)] =
              x[i] * scale * weight[static_cast<size_t>(norm.weight_of(first)) + i] + bias[i];
      }
  }

  void run(const op::Linear& linear, const Inputs& in, Tokens, Rows<T>& out) {
    const int64_t block =
        style_.int8 ? parity::activation_block(linear.weight, parity::kInt8Levels) : 0;
    std::vector<std::vector<T>> x;
    Rows<T> input = in[0];
    round_numbers(std::span<T>(input.values), static_cast<size_t>(input.columns), style_.products);
    for (int64_t t = 0; t < count_; ++t) {
      x.emplace_back(input.row(t), input.row(t) + input.columns);
      if (block > 0)
        x.back() = parity::round_to_levels(std::span<const T>(x.back()), parity::kInt8Levels,
                                           static_cast<size_t>(block));
      else if (style_.int8 && linear.weight.format->format() == quant::Format::kF16)
        round_all(x.back(), DType::kF16);
    }
    std::vector<T> bias(static_cast<size_t>(out.columns));
    if (linear.bias) bias = vector(*linear.bias);
    for (int64_t r = 0; r < out.columns; ++r) {
      const std::vector<T> w = matrix_row(linear.weight, r);
      const bool halves = style_.half_sums && linear.weight.format->format() == quant::Format::kF16;
      for (int64_t t = 0; t < count_; ++t) {
        const std::vector<T>& row = x[static_cast<size_t>(t)];
        out.row(t)[r] = (halves ? half_dot(w, row) : dot(w, row)) + bias[static_cast<size_t>(r)];
      }
    }
  }

  void run(const op::Slice& slice, const Inputs& in, Tokens, Rows<T>& out) const {
    for (int64_t t = 0; t < count_; ++t)
      std::copy_n(in[0].row(t) + slice.first, out.columns, out.row(t));
  }

  void run(const op::HeadParts& parts, const Inputs& in, Tokens, Rows<T>& out) const {
    const int64_t size = out.columns / parts.heads, rest = size - parts.width;
    for (int64_t t = 0; t < count_; ++t)
      for (int64_t head = 0; head < parts.heads; ++head) {
        T* to = out.row(t) + head * size;
        std::copy_n(in[0].row(t) + head * (in[0].columns / parts.heads) + parts.first, parts.width,
                    to);
        if (rest > 0)
          std::copy_n(in[1].row(t) + (in[1].columns == rest ? 0 : head * rest), rest,
                      to + parts.width);
      }
  }

  void run(const op::Rope& rope, const Inputs& in, Tokens, Rows<T>& out) const {
    out = in[0];
    const std::vector<double> exact = op::rope_frequencies(rope);
    const T magnitude = static_cast<T>(op::rope_magnitude(rope));
    const bool adjacent = rope.pairing == op::Rope::Pairing::kAdjacent;
    const int64_t pairs = rope.dims / 2;
    for (int64_t t = 0; t < count_; ++t) {
      const int64_t position = position_of(t);
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const T angle = static_cast<T>(position) * static_cast<T>(exact[static_cast<size_t>(pair)]);
        const T c = std::cos(angle) * magnitude;
        const T s = std::sin(angle) * magnitude;
        for (int64_t head = 0; head < out.columns; head += rope.head_size) {
          T& a = out.row(t)[head + (adjacent ? 2 * pair : pair)];
          T& b = out.row(t)[head + (adjacent ? 2 * pair + 1 : pair + pairs)];
          const T x = a;
          const T y = b;
          a = x * c - y * s;
          b = x * s + y * c;
        }
      }
    }
  }

  void run(const op::Activate& activate, const Inputs& in, Tokens, Rows<T>& out) const {
    for (size_t i = 0; i < out.values.size(); ++i) {
      const T x = in[0].values[i];
      T y = 0;
      switch (activate.kind) {
        case op::Activate::Kind::kSilu:
          y = x / (1 + std::exp(-x));
          break;
        case op::Activate::Kind::kGeluTanh: {
          const T inner = static_cast<T>(std::sqrt(2 / std::numbers::pi)) *
                          (x + static_cast<T>(0.044715) * x * x * x);
          y = x / 2 * (1 + std::tanh(inner));
          break;
        }
        case op::Activate::Kind::kGeluErf:
          y = x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<T>));
          break;
        case op::Activate::Kind::kClampedSwish: {
          const T bounded = std::min(x, T(7));
          y = bounded * (1 / (1 + std::exp(-(bounded * static_cast<T>(1.702)))));
          if (in.size() > 1) y *= std::clamp(in[1].values[i], T(-7), T(7)) + 1;
          out.values[i] = y;
          continue;
        }
      }
      out.values[i] = in.size() > 1 ? y * in[1].values[i] : y;
    }
  }

  void run(const op::Add&, const Inputs& in, Tokens, Rows<T>& out) const {
    for (size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = in[0].values[i] + in[1].values[i];
  }

  void run(const op::Scale& scale, const Inputs& in, Tokens, Rows<T>& out) const {
    for (size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = static_cast<T>(scale.factor) * in[0].values[i];
  }

  void run(const op::SoftCap& soft, const Inputs& in, Tokens, Rows<T>& out) const {
    const T cap = static_cast<T>(soft.cap);
    for (size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = cap * std::tanh(in[0].values[i] / cap);
  }

  void run(const op::Choose& choose, const Inputs& in, Tokens, Rows<T>& out) const {
    const std::vector<T> bias = choose.bias ? vector(*choose.bias) : std::vector<T>();
    for (int64_t t = 0; t < count_; ++t) {
      std::vector<T> scores = expert_scores(choose.scoring, in[0].span(t, 0, in[0].columns));
      for (size_t e = 0; e < bias.size(); ++e) scores[e] += bias[e];
      std::vector<double> exact(scores.begin(), scores.end());
      std::vector<int64_t> choice(static_cast<size_t>(out.columns));
      choice.resize(choice.size() + static_cast<size_t>(deviation_.skipped_experts));
      op::choose_experts(choose, exact, choice);
      choice.erase(choice.begin(), choice.begin() + deviation_.skipped_experts);
      for (int64_t& expert : choice)
        expert = (expert + deviation_.expert_offset + in[0].columns) % in[0].columns;
      if (style_.experts_in_order) std::ranges::sort(choice);
      for (size_t i = 0; i < choice.size(); ++i) out.row(t)[i] = static_cast<T>(choice[i]);
    }
  }

  void run(const op::Weigh& weigh, const Inputs& in, Tokens, Rows<T>& out) const {
    for (int64_t t = 0; t < count_; ++t) {
      const std::vector<T> scores = expert_scores(weigh.scoring, in[0].span(t, 0, in[0].columns));
      std::vector<T> chosen;
      for (int64_t slot = 0; slot < out.columns; ++slot)
        chosen.push_back(scores[static_cast<size_t>(in[1].row(t)[slot])]);
      const T total = weigh.normalize ? sum(chosen) : T(1);
      for (int64_t slot = 0; slot < out.columns; ++slot)
        out.row(t)[slot] = chosen[static_cast<size_t>(slot)] / total * static_cast<T>(weigh.scale);
    }
  }

  void run(const op::ExpertLinear& all, const Inputs& in, Tokens tokens, Rows<T>& out) {
    const int64_t used = in[1].columns, columns = all.weight.columns, rows = all.rows();
    const int64_t count = count_;
    for (int64_t expert = 0; expert < all.experts; ++expert) {
      const op::Linear linear = op::expert_of(all, expert);
      for (int64_t t = 0; t < count; ++t)
        for (int64_t slot = 0; slot < used; ++slot) {
          if (static_cast<int64_t>(in[1].row(t)[slot]) != expert) continue;
          Rows<T> x(1, columns), y(1, rows);
          std::copy_n(in[0].row(t) + (in[0].columns == columns ? 0 : slot * columns), columns,
                      x.row(0));
          count_ = 1;
          run(linear, {x}, tokens, y);
          count_ = count;
          std::copy_n(y.row(0), rows, out.row(t) + slot * rows);
        }
    }
  }

  void run(const op::MixExperts&, const Inputs& in, Tokens, Rows<T>& out) const {
    for (int64_t t = 0; t < count_; ++t)
      for (int64_t i = 0; i < out.columns; ++i) {
        std::vector<T> terms;
        for (int64_t slot = 0; slot < in[0].columns; ++slot)
          terms.push_back(in[0].row(t)[slot] * in[1].row(t)[slot * out.columns + i]);
        out.row(t)[i] = sum(terms);
      }
  }

  void run(const op::Gate&, const Inputs& in, Tokens, Rows<T>& out) const {
    for (int64_t t = 0; t < count_; ++t)
      for (int64_t i = 0; i < out.columns; ++i)
        out.row(t)[i] = in[0].row(t)[i] * (1 / (1 + std::exp(-in[1].row(t)[0])));
  }

  std::vector<T> expert_scores(op::Scoring scoring, std::span<const T> router) const {
    std::vector<T> out(router.begin(), router.end());
    if (scoring == op::Scoring::kSigmoid) {
      for (T& x : out) x = 1 / (1 + std::exp(-x));
      return out;
    }
    const T largest = *std::ranges::max_element(out);
    for (T& x : out) x = std::exp(x - largest);
    const T total = sum(out);
    for (T& x : out) x /= total;
    return out;
  }

  void run(const op::Attention&, const Inputs&, Tokens, Rows<T>&) const {}

  void append(Cache& cache, const Inputs& in) const {
    cache.k.resize(static_cast<size_t>(positions()));
    cache.v.resize(static_cast<size_t>(positions()));
    for (int64_t t = 0; t < count_; ++t) {
      std::vector<T> k(in[1].row(t), in[1].row(t) + in[1].columns);
      std::vector<T> v(in[2].row(t), in[2].row(t) + in[2].columns);
      if (style_.kv) round_all(k, *style_.kv);
      if (style_.kv) round_all(v, *style_.kv);
      round_numbers(std::span<T>(k), k.size(), style_.cache);
      round_numbers(std::span<T>(v), v.size(), style_.cache);
      if (quirk_.kind == Kind::kHalfCache) round_all(k, DType::kF16);
      if (quirk_.kind == Kind::kHalfCache) round_all(v, DType::kF16);
      cache.k.push_back(std::move(k));
      cache.v.push_back(std::move(v));
    }
  }

  bool sees(const op::Attention& attention, int64_t position, int64_t other) const {
    if (deviation_.sees) return deviation_.sees(position, other);
    if (other > position) return false;
    return attention.window == 0 || other > position - attention.window;
  }

  void attend(const op::Attention& attention, const Inputs& in, Cache& cache, Rows<T>& out,
              Rows<T>& scores, Rows<T>& probs) {
    append(cache, in);
    Rows<T> q = in[0];
    if (style_.cache_as_is)
      round_numbers(std::span<T>(q.values), static_cast<size_t>(q.columns), style_.products);
    const auto n = static_cast<int64_t>(cache.k.size());
    scores = Rows<T>(attention.heads * count_, n);
    probs = Rows<T>(attention.heads * count_, n);
    constexpr T kNothing = -std::numeric_limits<T>::infinity();
    const std::vector<T> sinks = attention.sinks ? vector(*attention.sinks) : std::vector<T>();
    for (int64_t head = 0; head < attention.heads; ++head) {
      const int64_t group = attention.heads / attention.kv_heads;
      const int64_t kv = deviation_.kv_head ? deviation_.kv_head(head) : head / group;
      for (int64_t t = 0; t < count_; ++t) {
        T* score = scores.row(head * count_ + t);
        T* prob = probs.row(head * count_ + t);
        T largest = kNothing;
        for (int64_t p = 0; p < n; ++p) {
          score[p] = static_cast<T>(deviation_.hidden);
          if (!sees(attention, positions() + t, p)) {
            largest = std::max(largest, score[p]);
            continue;
          }
          const std::vector<T>& key = cache.k[static_cast<size_t>(p)];
          score[p] = static_cast<T>(attention.scale) *
                     dot(q.span(t, head * attention.head_size, attention.head_size),
                         std::span(key).subspan(static_cast<size_t>(kv * attention.head_size),
                                                static_cast<size_t>(attention.head_size)));
          if (attention.soft_cap > 0) {
            const T cap = static_cast<T>(attention.soft_cap);
            score[p] = cap * std::tanh(score[p] / cap);
          }
          largest = std::max(largest, score[p]);
        }
        if (!sinks.empty()) largest = std::max(largest, sinks[static_cast<size_t>(head)]);
        if (quirk_.kind == Kind::kNoMaximum) largest = 0;
        std::vector<T> powers;
        for (int64_t p = 0; p < n; ++p) powers.push_back(std::exp(score[p] - largest));
        std::vector<T> with_sink = powers;
        if (!sinks.empty())
          with_sink.push_back(std::exp(sinks[static_cast<size_t>(head)] - largest));
        const T total = sum(with_sink);
        for (int64_t p = 0; p < n; ++p) {
          prob[p] = powers[static_cast<size_t>(p)] / total;
          if (score[p] == kNothing && style_.masked != 0) score[p] = static_cast<T>(style_.masked);
        }
        std::vector<T> shares = powers;
        if (style_.cache_as_is) {
          for (T& share : shares)
            share = static_cast<T>(
                nearest_small(static_cast<double>(share), style_.cache.substr(0, 4)));
        }
        for (T& share : shares) share /= total;
        for (int64_t d = 0; d < attention.value_size; ++d) {
          std::vector<T> column;
          for (int64_t p = 0; p < n; ++p)
            column.push_back(cache.v[static_cast<size_t>(p)]
                                    [static_cast<size_t>(kv * attention.value_size + d)]);
          out.row(t)[head * attention.value_size + d] =
              style_.half_sums ? half_dot(shares, column) : dot(shares, column);
        }
      }
    }
    round(scores);
    round(probs);
  }

  void show(const exec::Step& step, op::ValueId id, const Rows<T>& rows,
            const std::vector<int64_t>& shape) const {
    if (step.observer == nullptr || !step.observer->wants(id)) return;
    if (dtype() == DType::kF32 && std::is_same_v<T, double>) {
      const std::vector<float> floats(rows.values.begin(), rows.values.end());
      step.observer->see(id, {DType::kF32, floats.data(), shape});
      return;
    }
    step.observer->see(id, {dtype(), rows.values.data(), shape});
  }

  const Style style_;
  const std::vector<Quirk> quirks_;
  Quirk quirk_;        // of the op that runs
  int64_t count_ = 0;  // tokens of the step
  std::vector<Cache> caches_;
  std::map<const std::byte*, std::vector<T>> rounded_;  // matrices, by where they lie
  const op::Deviations deviations_;
  op::Deviation deviation_;                                                   // of the op that runs
  std::vector<int32_t> tokens_;                                               // by position
  std::map<std::pair<size_t, size_t>, std::vector<std::vector<T>>> history_;  // for deviations
  Rows<T> logits_;
};

}  // namespace

trace::Precision precision_of(const Style& style) {
  trace::Precision out;
  out.compute = out.activations = out.kv = style.doubles ? "f64" : "f32";
  if (style.silent) return out;
  if (style.activations) out.activations = out.kv = std::string(name(*style.activations));
  if (style.int8) out.activations = "q8_0";
  if (style.kv) out.kv = std::string(name(*style.kv));
  if (!style.products.empty()) out.activations = style.products;
  if (!style.cache.empty()) out.kv = style.cache;
  if (!style.weights.empty()) out.weights = style.weights;
  if (!style.factors.empty()) out.compute = "tf32";
  if (style.half_sums) {
    out.activations = "by_weight";
    if (style.says_sums) out.sums = "f16";
  }
  return out;
}

std::unique_ptr<exec::Executor> make_engine(const op::Program& program, const Style& style,
                                            std::span<const Quirk> quirks,
                                            const op::Deviations& deviations) {
  if (style.doubles)
    return std::make_unique<HonestEngine<double>>(program, style, quirks, deviations);
  return std::make_unique<HonestEngine<float>>(program, style, quirks, deviations);
}

}  // namespace lockstep::engines
