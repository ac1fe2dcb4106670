#include "exec/cpu/row_ops.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "op/experts.h"
#include "quant/decode.h"

namespace lockstep::exec::cpu {
namespace {

struct Evaluate {
  const RowCall& call;

  std::vector<double> router() const { return {call.inputs[0], call.inputs[0] + call.first_width}; }

  void operator()(const op::Embed& embed) const {
    const int64_t row =
        embed.index == op::Embed::Index::kToken ? int64_t{call.token} : call.position;
    quant::decode(embed.table.format->format(), embed.table.row(row), embed.table.columns,
                  call.out);
  }

  void operator()(const op::Norm& norm) const {
    const auto epsilon = static_cast<float>(norm.epsilon);
    for (int64_t first = 0; first < call.width; first += norm.group) {
      const float* x = call.inputs[0] + first;
      const float* weight = call.weight + norm.weight_of(first);
      if (norm.kind == op::Norm::Kind::kRms)
        call.kernels.rms_norm(x, weight, epsilon, norm.group, call.out + first);
      else
        call.kernels.layer_norm(x, weight, call.bias, epsilon, norm.group, call.out + first);
    }
  }

  void operator()(const op::Slice& slice) const {
    std::copy_n(call.inputs[0] + slice.first, call.width, call.out);
  }

  void operator()(const op::HeadParts& parts) const {
    const int64_t size = call.width / parts.heads, rest = size - parts.width;
    const int64_t stride = call.first_width / parts.heads;
    const bool shared = rest > 0 && call.second_width == rest;
    for (int64_t head = 0; head < parts.heads; ++head) {
      float* out = call.out + head * size;
      std::copy_n(call.inputs[0] + head * stride + parts.first, parts.width, out);
      if (rest > 0)
        std::copy_n(call.inputs[1] + (shared ? 0 : head * rest), rest, out + parts.width);
    }
  }

  void operator()(const op::Rope& rope) const {
    std::copy_n(call.inputs[0], call.width, call.out);
    const int64_t pairs = rope.dims / 2;
    const float* c = call.rope->cosines.data() + call.row * pairs;
    const float* s = call.rope->sines.data() + call.row * pairs;
    const bool adjacent = rope.pairing == op::Rope::Pairing::kAdjacent;
    for (int64_t head = 0; head < call.width; head += rope.head_size) {
      float* out = call.out + head;
      for (int64_t i = 0; i < pairs; ++i) {
        float& a = out[adjacent ? 2 * i : i];
        float& b = out[adjacent ? 2 * i + 1 : i + pairs];
        const float x = a, y = b;
        a = x * c[i] - y * s[i];
        b = x * s[i] + y * c[i];
      }
    }
  }

  void operator()(const op::Activate& activate) const {
    const float* x = call.inputs[0];
    const float* other = call.inputs.size() > 1 ? call.inputs[1] : nullptr;
    switch (activate.kind) {
      case op::Activate::Kind::kSilu:
        return call.kernels.silu(x, other, call.width, call.out);
      case op::Activate::Kind::kGeluTanh:
        return call.kernels.gelu_tanh(x, other, call.width, call.out);
      case op::Activate::Kind::kClampedSwish:
        return call.kernels.clamped_swish(x, other, call.width, call.out);
      case op::Activate::Kind::kGeluErf:
        for (int64_t i = 0; i < call.width; ++i) {
          const double v = x[i];
          const auto y = static_cast<float>(0.5 * v * (1 + std::erf(v / std::numbers::sqrt2)));
          call.out[i] = other != nullptr ? y * other[i] : y;
        }
    }
  }

  void operator()(const op::Add&) const {
    call.kernels.add(call.inputs[0], call.inputs[1], call.width, call.out);
  }

  void operator()(const op::Scale& scale) const {
    call.kernels.scale(call.inputs[0], static_cast<float>(scale.factor), call.width, call.out);
  }

  void operator()(const op::SoftCap& soft) const {
    call.kernels.soft_cap(call.inputs[0], static_cast<float>(soft.cap), call.width, call.out);
  }

  void operator()(const op::Choose& choose) const {
    std::vector<double> scores = router();
    const std::vector<double> bias =
        call.bias == nullptr ? std::vector<double>{}
                             : std::vector<double>(call.bias, call.bias + scores.size());
    op::scores_for_choice(choose, bias, scores);
    std::vector<int64_t> choice(static_cast<size_t>(call.width));
    op::choose_experts(choose, scores, choice);
    for (size_t i = 0; i < choice.size(); ++i) call.out[i] = static_cast<float>(choice[i]);
  }

  void operator()(const op::Weigh& weigh) const {
    std::vector<double> scores = router();
    op::score_experts(weigh.scoring, scores);
    double sum = 0;
    const auto score = [&](int64_t slot) {
      return scores[static_cast<size_t>(call.inputs[1][slot])];
    };
    for (int64_t slot = 0; slot < call.width; ++slot) sum += score(slot);
    const double factor = weigh.scale / (weigh.normalize ? sum : 1);
    for (int64_t slot = 0; slot < call.width; ++slot)
      call.out[slot] = static_cast<float>(score(slot) * factor);
  }

  void operator()(const op::MixExperts&) const {
    constexpr int64_t kAtOnce = 64;
    for (int64_t first = 0; first < call.width; first += kAtOnce) {
      const int64_t count = std::min(kAtOnce, call.width - first);
      double sums[kAtOnce] = {};
      for (int64_t slot = 0; slot < call.first_width; ++slot) {
        const double weight = call.inputs[0][slot];
        const float* x = call.inputs[1] + slot * call.width + first;
        for (int64_t i = 0; i < count; ++i) sums[i] += weight * static_cast<double>(x[i]);
      }
      for (int64_t i = 0; i < count; ++i) call.out[first + i] = static_cast<float>(sums[i]);
    }
  }

  void operator()(const op::Gate&) const {
    const double gate = 1 / (1 + std::exp(-static_cast<double>(call.inputs[1][0])));
    for (int64_t i = 0; i < call.width; ++i)
      call.out[i] = static_cast<float>(gate * static_cast<double>(call.inputs[0][i]));
  }

  void operator()(const op::ExpertLinear&) const { LS_CHECK(false, "a product is no row op"); }
  void operator()(const op::Linear&) const { LS_CHECK(false, "a product is no row op"); }
  void operator()(const op::Attention&) const { LS_CHECK(false, "attention is no row op"); }
};

}  // namespace

void evaluate_row(const op::What& what, const RowCall& call) {
  std::visit(Evaluate{call}, what);
}

}  // namespace lockstep::exec::cpu
