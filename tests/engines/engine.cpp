#include "engine.h"

#include <cmath>
#include <limits>
#include <map>
#include <numbers>

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
  HonestEngine(const op::Program& program, const Style& style, const Quirk& quirk)
      : Executor(program), style_(style), quirk_(quirk) {}

  DType dtype() const override {
    return std::is_same_v<T, double> && !style_.shows_floats ? DType::kF64 : DType::kF32;
  }

  exec::Precision precision() const override { return {}; }  // the test says it

 protected:
  Result<View> evaluate(const exec::Step& step) override {
    count_ = static_cast<int64_t>(step.tokens.size());
    std::vector<Rows<T>> values(program().values.size());
    size_t layer = 0;
    for (const op::Op& op : program().ops) {
      std::vector<Rows<T>> inputs;
      for (const op::ValueId id : op.inputs) inputs.push_back(values[static_cast<size_t>(id)]);
      const op::ValueId id = op.outputs[0];
      const bool concerned = id == quirk_.value;
      kind_ = concerned ? quirk_.kind : Kind::kNone;
      for (Rows<T>& input : inputs) alter_input(input);
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
      round(out);
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
    if (kind_ == Kind::kHalfInput) round_all(input.values, DType::kF16);
    if (kind_ == Kind::kBfloatInput) round_all(input.values, DType::kBF16);
    if (kind_ == Kind::kStaleInput) {
      const Rows<T> fresh = input;
      for (int64_t t = 1; t < count_; ++t)
        std::copy_n(fresh.row(t - 1), input.columns, input.row(t));
      if (!previous_.empty()) std::ranges::copy(previous_, input.row(0));
      previous_.assign(fresh.row(count_ - 1), fresh.row(count_ - 1) + input.columns);
    }
  }

  void alter_output(Rows<T>& out) {
    if (kind_ == Kind::kBfloatOutput) round_all(out.values, DType::kBF16);
    const int64_t t = quirk_.position - positions();
    if (kind_ == Kind::kStaleRow) {
      if (t >= 0 && t < count_)
        std::copy_n(t > 0 ? out.row(t - 1) : previous_.data(), out.columns, out.row(t));
      previous_.assign(out.row(count_ - 1), out.row(count_ - 1) + out.columns);
    }
    if (t < 0 || t >= count_) return;
    if (kind_ == Kind::kNan) out.row(t)[out.columns / 2] = std::numeric_limits<T>::quiet_NaN();
    if (kind_ == Kind::kInfinity) out.row(t)[out.columns / 2] = std::numeric_limits<T>::infinity();
  }

  using Inputs = std::vector<Rows<T>>;
  using Tokens = std::span<const exec::TokenId>;

  void run(const op::Embed& embed, const Inputs&, Tokens tokens, Rows<T>& out) {
    for (int64_t t = 0; t < count_; ++t) {
      const int64_t row = embed.index == op::Embed::Index::kToken ? tokens[static_cast<size_t>(t)]
                                                                  : positions() + t;
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
          out.row(t)[first + static_cast<int64_t>(i)] = x[i] * scale * weight[i] + bias[i];
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
      for (int64_t t = 0; t < count_; ++t)
        out.row(t)[r] = dot(w, x[static_cast<size_t>(t)]) + bias[static_cast<size_t>(r)];
    }
  }

  void run(const op::Slice& slice, const Inputs& in, Tokens, Rows<T>& out) const {
    for (int64_t t = 0; t < count_; ++t)
      std::copy_n(in[0].row(t) + slice.first, out.columns, out.row(t));
  }

  void run(const op::Rope& rope, const Inputs& in, Tokens, Rows<T>& out) const {
    out = in[0];
    const std::vector<double> exact = op::rope_frequencies(rope);
    const T magnitude = static_cast<T>(op::rope_magnitude(rope));
    const bool adjacent = rope.pairing == op::Rope::Pairing::kAdjacent;
    const int64_t pairs = rope.dims / 2;
    for (int64_t t = 0; t < count_; ++t) {
      const int64_t position = positions() + t + (kind_ == Kind::kNextPosition ? 1 : 0);
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
      if (kind_ == Kind::kHalfCache) round_all(k, DType::kF16);
      if (kind_ == Kind::kHalfCache) round_all(v, DType::kF16);
      const bool here = positions() + t == quirk_.position;
      cache.k.push_back(kind_ == Kind::kStaleKey && here ? cache.k.back() : k);
      cache.v.push_back(kind_ == Kind::kStaleValue && here ? cache.v.back() : v);
    }
  }

  bool sees(const op::Attention& attention, int64_t position, int64_t other) const {
    if (kind_ == Kind::kNoMask) return true;
    if (kind_ == Kind::kNotItself && other == position && position > 0) return false;
    if (other > position + (kind_ == Kind::kSeesNext ? 1 : 0)) return false;
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
    for (int64_t head = 0; head < attention.heads; ++head) {
      const int64_t group = attention.heads / attention.kv_heads;
      const int64_t kv = kind_ == Kind::kInterleaved ? head % attention.kv_heads : head / group;
      for (int64_t t = 0; t < count_; ++t) {
        T* score = scores.row(head * count_ + t);
        T* prob = probs.row(head * count_ + t);
        T largest = kNothing;
        for (int64_t p = 0; p < n; ++p) {
          score[p] = kNothing;
          if (!sees(attention, positions() + t, p)) continue;
          const std::vector<T>& key = cache.k[static_cast<size_t>(p)];
          score[p] = static_cast<T>(attention.scale) *
                     dot(q.span(t, head * attention.head_size, attention.head_size),
                         std::span(key).subspan(static_cast<size_t>(kv * attention.head_size),
                                                static_cast<size_t>(attention.head_size)));
          largest = std::max(largest, score[p]);
        }
        if (kind_ == Kind::kNoMaximum) largest = 0;
        std::vector<T> powers;
        for (int64_t p = 0; p < n; ++p) powers.push_back(std::exp(score[p] - largest));
        const T total = sum(powers);
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
          std::vector<T> terms;
          for (int64_t p = 0; p < n; ++p)
            terms.push_back(factor(shares[static_cast<size_t>(p)]) *
                            factor(cache.v[static_cast<size_t>(p)]
                                          [static_cast<size_t>(kv * attention.value_size + d)]));
          out.row(t)[head * attention.value_size + d] = sum(terms);
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
  const Quirk quirk_;
  Kind kind_ = Kind::kNone;  // of the op that runs
  int64_t count_ = 0;        // tokens of the step
  std::vector<Cache> caches_;
  std::map<const std::byte*, std::vector<T>> rounded_;  // matrices, by where they lie
  std::vector<T> previous_;  // last row of the step before, for stale rows
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
  return out;
}

std::unique_ptr<exec::Executor> make_engine(const op::Program& program, const Style& style,
                                            const Quirk& quirk) {
  if (style.doubles) return std::make_unique<HonestEngine<double>>(program, style, quirk);
  return std::make_unique<HonestEngine<float>>(program, style, quirk);
}

}  // namespace lockstep::engines
