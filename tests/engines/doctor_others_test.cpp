// Mistakes as people make them who write an engine of their own, each computed here by hand: what
// is named is right.
#include <cmath>
#include <numbers>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "clinic.h"
#include "op/rope.h"

namespace lockstep::engines {
namespace {

using doctor::Diagnosis;
using parity::Order;
using InputRows = op::Deviation::InputRows;

constexpr int64_t kPrompt = 9;

struct OwnMistake {
  std::string words;
  std::string arch;
  std::string value;
  std::set<std::string> causes;  // any of them is right; none: it has no name
  doctor::Alteration make;
};

// A row of the result from the op and the rows of its inputs.
template <class What>
doctor::Alteration by_hand(
    std::function<void(const What&, InputRows, int64_t position, std::span<double>)> row) {
  return [row](doctor::Altered& altered, size_t op) {
    const auto* what = std::get_if<What>(&altered.op(op).what);
    if (what == nullptr) return false;
    altered.deviation(op).row = [row, own = *what](InputRows inputs, int64_t position,
                                                   std::span<double> result) {
      row(own, inputs, position, result);
    };
    return true;
  };
}

// With the mean of squares of the group, less the mean where the norm takes it away.
doctor::Alteration norm_by_hand(
    const std::function<double(double x, double squares, double epsilon, double count)>& scaled) {
  return by_hand<op::Norm>(
      [=](const op::Norm& norm, InputRows in, int64_t, std::span<double> result) {
        const std::vector<float> weight = doctor::decode(norm.weight);
        const auto n = static_cast<size_t>(norm.group);
        for (size_t first = 0; first < result.size(); first += n) {
          std::vector<double> x(in[0].begin() + static_cast<std::ptrdiff_t>(first),
                                in[0].begin() + static_cast<std::ptrdiff_t>(first + n));
          double mean = 0;
          for (const double each : x) mean += each / static_cast<double>(n);
          double squares = 0;
          for (double& each : x) {
            if (norm.kind == op::Norm::Kind::kLayer) each -= mean;
            squares += each * each / static_cast<double>(n);
          }
          for (size_t i = 0; i < n; ++i) {
            const auto at = static_cast<size_t>(norm.weight_of(static_cast<int64_t>(first))) + i;
            result[first + i] = scaled(x[i], squares, norm.epsilon, static_cast<double>(n)) *
                                static_cast<double>(weight[at]);
            if (norm.bias) result[first + i] += static_cast<double>(doctor::decode(*norm.bias)[at]);
          }
        }
      });
}

// One pair of a head, in place: its numbers, where they lie, and the angle.
using TurnPair = std::function<void(double& x, double& y, double angle)>;
doctor::Alteration rope_by_hand(const TurnPair& turn) {
  return by_hand<op::Rope>(
      [=](const op::Rope& rope, InputRows in, int64_t position, std::span<double> result) {
        std::ranges::copy(in[0], result.begin());
        const auto frequencies = op::rope_frequencies(rope);
        for (size_t head = 0; head < result.size(); head += static_cast<size_t>(rope.head_size))
          for (size_t i = 0; i < frequencies.size(); ++i) {
            const bool halves = rope.pairing == op::Rope::Pairing::kHalves;
            turn(result[head + (halves ? i : 2 * i)],
                 result[head + (halves ? i + frequencies.size() : 2 * i + 1)],
                 static_cast<double>(position) * frequencies[i]);
          }
      });
}

// Frequencies by a formula of one's own, of pair i.
doctor::Alteration frequencies_by_hand(
    const std::function<double(const op::Rope&, double i)>& frequency) {
  return doctor::rope([=](op::Rope& rope) {
    const auto exact = op::rope_frequencies(rope);
    rope.factors.assign(exact.size(), 1.0F);
    for (size_t i = 0; i < exact.size(); ++i)
      rope.factors[i] = static_cast<float>(exact[i] / frequency(rope, static_cast<double>(i)));
    return true;
  });
}

void rotate(double& x, double& y, double angle) {
  const double before = x;
  x = before * std::cos(angle) - y * std::sin(angle);
  y = before * std::sin(angle) + y * std::cos(angle);
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

doctor::Alteration gate_by_hand(const std::function<double(double gate, double up)>& both) {
  return by_hand<op::Activate>(
      [=](const op::Activate&, InputRows in, int64_t, std::span<double> result) {
        for (size_t i = 0; i < result.size(); ++i) result[i] = both(in[0][i], in[1][i]);
      });
}

std::vector<OwnMistake> own_norms() {
  const auto after_root = norm_by_hand([](double x, double squares, double epsilon, double) {
    return x / (std::sqrt(squares) + epsilon);
  });
  return {
      {"epsilon after the root", "llama", "blk.1.attn_norm", {"norm.epsilon"}, after_root},
      {"epsilon after the root", "gpt2", "blk.0.ffn_norm", {"norm.epsilon"}, after_root},
      {"epsilon after the root of a head's norm", "qwen3", "blk.1.q", {"norm.epsilon"}, after_root},
      {"variance over n - 1",
       "gpt2",
       "blk.1.attn_norm",
       {"norm.kind"},
       norm_by_hand([](double x, double squares, double epsilon, double n) {
         return x / std::sqrt(squares * n / (n - 1) + epsilon);
       })},
      {"a sum for a mean",
       "llama",
       "blk.0.ffn_norm",
       {"norm.kind"},
       norm_by_hand([](double x, double squares, double epsilon, double n) {
         return x / std::sqrt(squares * n + epsilon);
       })},
      {"no root",
       "llama",
       "final_norm",
       {"norm.kind"},
       norm_by_hand([](double x, double squares, double epsilon, double) {
         return x / (squares + epsilon);
       })},
      {"a mean over padded rows",
       "llama",
       "blk.1.ffn_norm",
       {"norm.kind"},
       norm_by_hand([](double x, double squares, double epsilon, double n) {
         return x / std::sqrt(squares * n / 64 + epsilon);
       })},
      {"no final norm", "qwen2", "final_norm", {"norm.missing"}, doctor::passes_on(0)},
  };
}

std::vector<OwnMistake> own_rotations() {
  const auto next_in_later_steps =
      doctor::counted_as([](int64_t p) { return p < kPrompt ? p : p + 1; });
  return {
      {"later steps one position on",
       "llama",
       "blk.1.k_rope",
       {"rope.position"},
       next_in_later_steps},
      {"later steps one position on",
       "qwen2",
       "blk.0.q_rope",
       {"rope.position"},
       next_in_later_steps},
      {"the first number overwritten",
       "llama",
       "blk.0.q_rope",
       {"rope.formula"},
       rope_by_hand([](double& x, double& y, double angle) {
         x = x * std::cos(angle) - y * std::sin(angle);
         y = x * std::sin(angle) + y * std::cos(angle);
       })},
      {"half of the rotation skipped",
       "qwen2",
       "blk.1.k_rope",
       {"rope.formula"},
       rope_by_hand([](double& x, double& y, double angle) {
         x = x * std::cos(angle) - y * std::sin(angle);
       })},
      {"sine and cosine swapped",
       "llama",
       "blk.2.k_rope",
       {"rope.formula"},
       rope_by_hand(
           [](double& x, double& y, double angle) { rotate(x, y, std::numbers::pi / 2 - angle); })},
      {"no minus",
       "qwen2",
       "blk.2.q_rope",
       {"rope.formula"},
       rope_by_hand([](double& x, double& y, double angle) {
         const double before = x;
         x = before * std::cos(angle) + y * std::sin(angle);
         y = before * std::sin(angle) + y * std::cos(angle);
       })},
      {"angles of neighbours for halves",
       "qwen2",
       "blk.1.q_rope",
       {"rope.pairing"},
       by_hand<op::Rope>([](const op::Rope& rope, InputRows in, int64_t position,
                            std::span<double> result) {
         const auto frequencies = op::rope_frequencies(rope);
         const size_t half = frequencies.size();
         for (size_t head = 0; head < result.size(); head += static_cast<size_t>(rope.head_size))
           for (size_t i = 0; i < 2 * half; ++i) {
             const double angle = static_cast<double>(position) * frequencies[i / 2];
             const double other = in[0][head + (i + half) % (2 * half)];
             result[head + i] =
                 in[0][head + i] * std::cos(angle) + (i < half ? -other : other) * std::sin(angle);
           }
       })},
      {"exponent i / d",
       "llama",
       "blk.1.q_rope",
       {"rope.base"},
       frequencies_by_hand([](const op::Rope& rope, double i) {
         return std::pow(rope.base, -i / static_cast<double>(rope.dims));
       })},
      {"exponent of a whole head",
       "stablelm",
       "blk.1.k_rope",
       {"rope.base"},
       frequencies_by_hand([](const op::Rope& rope, double i) {
         return std::pow(rope.base, -2 * i / static_cast<double>(rope.head_size));
       })},
      {"frequencies from the second on",
       "llama",
       "blk.0.k_rope",
       {"rope.scaling"},
       frequencies_by_hand([](const op::Rope& rope, double i) {
         return std::pow(rope.base, -2 * (i + 1) / static_cast<double>(rope.dims));
       })},
      {"the last numbers of a head",
       "stablelm",
       "blk.0.q_rope",
       {"rope.dims"},
       by_hand<op::Rope>(
           [](const op::Rope& rope, InputRows in, int64_t position, std::span<double> result) {
             std::ranges::copy(in[0], result.begin());
             const auto frequencies = op::rope_frequencies(rope);
             const auto skipped = static_cast<size_t>(rope.head_size - rope.dims);
             for (size_t head = skipped; head < result.size();
                  head += static_cast<size_t>(rope.head_size))
               for (size_t i = 0; i < frequencies.size(); ++i)
                 rotate(result[head + i], result[head + i + frequencies.size()],
                        static_cast<double>(position) * frequencies[i]);
           })},
      {"dims of a whole head", "stablelm", "blk.1.q_rope", {"rope.dims"}, doctor::rope_dims(12)},
      {"angles in degrees",
       "llama",
       "blk.2.q_rope",
       {"rope.scaling"},
       rope_by_hand([](double& x, double& y, double angle) {
         rotate(x, y, angle * std::numbers::pi / 180);
       })},
  };
}

std::vector<OwnMistake> own_attention() {
  const auto zero_mask = [](doctor::Altered& altered, size_t op) {
    altered.deviation(op).sees = [](int64_t position, int64_t key) { return key <= position; };
    altered.deviation(op).hidden = 0;
    return true;
  };
  const auto kv_rows = [](std::function<int64_t(int64_t)> from) {
    return [from](doctor::Altered& altered, size_t op) {
      altered.deviation(op).reads = [from](size_t input, int64_t position) {
        return input == 0 ? position : from(position);
      };
      return true;
    };
  };
  return {
      {"masked scores are 0", "llama", "blk.1.attn_mix", {"attention.mask"}, zero_mask},
      {"masked scores are 0", "gpt2", "blk.0.attn_mix", {"attention.mask"}, zero_mask},
      {"rows of the cache mixed up",
       "llama",
       "blk.0.attn_mix",
       {"cache.stale", "cache.position", doctor::kUnknown},
       kv_rows([](int64_t p) { return p < kPrompt ? (4 * p + 1) % kPrompt : p; })},
      {"later steps write where the prompt ended",
       "qwen2",
       "blk.1.attn_mix",
       {"cache.stale", "cache.position"},
       kv_rows([](int64_t p) { return std::min(p, kPrompt); })},
      {"later steps write nothing",
       "llama",
       "blk.1.attn_mix",
       {"cache.missing"},
       kv_rows([](int64_t p) { return p < kPrompt ? p : op::Deviation::kZeros; })},
      {"the cache is cut to 6 rows",
       "llama",
       "blk.2.attn_mix",
       {"attention.window"},
       doctor::sees([](const op::Attention&, int64_t position, int64_t key) {
         return key <= position && key > position - 6;
       })},
      {"scale of the number of heads",
       "llama",
       "blk.1.attn_mix",
       {"attention.scale"},
       doctor::attention([](op::Attention& own) {
         own.scale = 1 / std::sqrt(static_cast<double>(own.heads));
         return true;
       })},
      {"a window in a layer without one",
       "gemma2",
       "blk.1.attn_mix",
       {"attention.window"},
       doctor::window(5)},
  };
}

std::vector<OwnMistake> own_others() {
  const auto gelu = [](double x, double cubed) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + cubed * x * x * x)));
  };
  return {
      {"silu of the product",
       "llama",
       "blk.1.ffn_act",
       {"activation.kind"},
       gate_by_hand([](double gate, double up) { return silu(gate * up); })},
      {"gate and up added",
       "qwen2",
       "blk.0.ffn_act",
       {"activation.kind"},
       gate_by_hand([](double gate, double up) { return silu(gate) + up; })},
      {"silu of both", "llama", "blk.0.ffn_act", {}, gate_by_hand([](double gate, double up) {
         return silu(gate) * silu(up);
       })},
      {"a wrong constant of GELU",
       "gpt2",
       "blk.1.ffn_act",
       {},
       by_hand<op::Activate>(
           [=](const op::Activate&, InputRows in, int64_t, std::span<double> result) {
             for (size_t i = 0; i < result.size(); ++i) result[i] = gelu(in[0][i], 0.44715);
           })},
      {"logits by the root of the width",
       "llama",
       "logits",
       {"scale.value"},
       doctor::times(1 / std::sqrt(44.0))},
      {"a tied head read transposed",
       "qwen2",
       "logits",
       {"weight.layout"},
       doctor::reweigh(doctor::column_major)},
      {"logits not capped", "gemma2", "logits", {"logits.soft_cap"}, doctor::passes_on(0)},
      {"logits capped otherwise", "gemma2", "logits", {"logits.soft_cap"}, doctor::logit_cap(17.3)},
      {"embedding not scaled", "gemma2", "embedding", {"scale.missing"}, doctor::scale_factor(1)},
      {"embedding scaled by the width",
       "gemma2",
       "embedding",
       {"scale.value"},
       doctor::scale_factor(44)},
      {"residual from the embedding",
       "llama",
       "blk.2.attn_residual",
       {"residual.input"},
       [](doctor::Altered& altered, size_t op) {
         return doctor::reads_value(0, altered.op(0).outputs[0])(altered, op);
       }},
      {"residual from after the norm",
       "llama",
       "blk.1.output",
       {"residual.input"},
       [](doctor::Altered& altered, size_t op) {
         for (const op::Op& other : altered.program().ops)
           if (altered.program().value(other.outputs[0]).name == "blk.1.ffn_norm")
             return doctor::reads_value(0, other.outputs[0])(altered, op);
         return false;
       }},
      {"bias twice", "qwen2", "blk.2.v", {"bias.twice"}, doctor::bias_times(2)},
      {"heads and their numbers transposed",
       "llama",
       "blk.1.attn_out",
       {"weight.layout"},
       doctor::input_columns([](int64_t count) {
         std::vector<int64_t> out;
         for (int64_t i = 0; i < count; ++i) out.push_back(i % 4 * 12 + i / 4);
         return out;
       })},
  };
}

class DoctorOthers : public testing::TestWithParam<std::string> {
 protected:
  void hold_to(const std::vector<OwnMistake>& mistakes, const Style& style) {
    for (const OwnMistake& mistake : mistakes) {
      if (mistake.arch != GetParam()) continue;
      SCOPED_TRACE(fmt::format("{} at {} of {}, {}, seed {}", mistake.words, mistake.value,
                               mistake.arch, style.name, seed_));
      Patient patient(program_);
      ASSERT_TRUE(mistake.make(patient.altered, *patient.find(mistake.value, -1)));
      const auto found = diagnose(lab_, honest_, lab_.record(job_, style, patient));
      if (!found.wrong()) continue;
      ASSERT_FALSE(found.diagnoses.empty());
      for (const Diagnosis& each : found.diagnoses) {
        // A coarse type may hide what it is.
        const bool silent = each.cause == doctor::kUnknown;
        const bool may_be_silent = mistake.causes.empty() || style.name != "f32" ||
                                   mistake.causes.contains(doctor::kUnknown);
        const bool listed = std::ranges::any_of(each.alternatives, [&](const std::string& cause) {
          return mistake.causes.contains(cause);
        });
        const bool right = mistake.causes.contains(each.cause) || (style.name != "f32" && listed);
        EXPECT_TRUE(silent ? may_be_silent : right) << tell(found.diagnoses);
      }
      if (std::getenv("LOCKSTEP_TABLE") != nullptr)
        fmt::print("{} {} | {} at {}\n{}", GetParam(), style.name, mistake.words, mistake.value,
                   tell(found.diagnoses));
    }
  }

  void hold_all_to(const Style& style) {
    for (const auto& mistakes : {own_norms(), own_rotations(), own_attention(), own_others()})
      hold_to(mistakes, style);
  }

  uint64_t seed_ = search_seed();
  Lab lab_ = Lab::forged({.arch = GetParam(),
                          .layers = 3,
                          .width = 44,
                          .heads = 4,
                          .kv_heads = GetParam() == "gpt2" ? 4 : 2,
                          .head_size = 12,
                          .feed_forward = 37,
                          .vocabulary = 71,
                          .context = 64,
                          .window = GetParam() == "gemma2" ? 5 : 0,
                          .rope_dims = GetParam() == "stablelm" ? 8 : 0,
                          .tied = GetParam() == "qwen2",
                          .biases = true,
                          .type = "f32",
                          .seed = seed_});
  Job job_{random_tokens(seed_, 14, 71), kPrompt};
  op::Program program_ = lab_.program(job_);
  trace::Trace honest_ = lab_.record(job_, {.order = Order::kPairwise}, program_);
};

TEST_P(DoctorOthers, AreNamed) {
  hold_all_to({.name = "f32", .order = Order::kLanes8});
  if (!runs_slow_tests()) return;
  hold_all_to({.name = "bf16", .order = Order::kLanes8, .activations = DType::kBF16});
  hold_all_to({.name = "f16", .order = Order::kLanes8, .activations = DType::kF16});
  hold_all_to({.name = "int8", .order = Order::kLanes8, .int8 = true});
}

INSTANTIATE_TEST_SUITE_P(Models, DoctorOthers,
                         testing::Values("llama", "gpt2", "qwen2", "qwen3", "gemma2", "stablelm"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace lockstep::engines
