// Slips of the pen in an engine of one's own, each computed here by hand: rotations, sums, weights
// of experts, masks, caches, what is handed on as logits.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/float16.h"
#include "clinic.h"
#include "op/rope.h"

namespace lockstep::engines {
namespace {

using doctor::Alteration;
using doctor::Diagnosis;
using parity::Order;
using InputRows = op::Deviation::InputRows;
using Row = std::function<void(InputRows inputs, int64_t position, std::span<double> result)>;

Alteration by_hand(Row row) {
  return [row = std::move(row)](doctor::Altered& altered, size_t op) {
    altered.deviation(op).row = row;
    return true;
  };
}

class DoctorSlips : public testing::Test {
 protected:
  DoctorSlips() { use("llama"); }

  void use(const std::string& arch) {
    forge::Spec spec{.arch = arch,
                     .layers = 2,
                     .width = 36,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_size = 12,
                     .feed_forward = 29,
                     .vocabulary = 67,
                     .context = 64,
                     .type = "f32",
                     .seed = 5};
    if (arch.ends_with("moe")) {
      spec.experts = 7;
      spec.experts_used = 3;
      spec.expert_feed_forward = 19;
    }
    lab_ = std::make_unique<Lab>(Lab::forged(spec));
    job_.prompt = 7;
    job_.tokens = random_tokens(11, 12, 67);
    job_.checkpoints = "ops";
  }

  std::vector<Diagnosis> diagnose(const std::string& value, const Alteration& alteration) {
    const op::Program program = lab_->program(job_);
    const auto honest = lab_->record(job_, {.order = Order::kPairwise}, program);
    const auto suspect =
        lab_->record(job_, {.order = Order::kLanes8}, altered(program, value, alteration));
    return engines::diagnose(*lab_, honest, suspect).diagnoses;
  }

  // `what`: a part of the text.
  void expect(const std::string& value, const std::string& cause, const std::string& what,
              const Alteration& alteration) {
    SCOPED_TRACE(fmt::format("{} at {}", what, value));
    const auto found = diagnose(value, alteration);
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.front().cause, cause) << found.front().text;
    EXPECT_NE(found.front().text.find(what), std::string::npos) << found.front().text;
    EXPECT_EQ(found.front().explained, found.front().rows) << found.front().text;
    EXPECT_EQ(found.size(), 1U) << tell(found);
  }

  std::unique_ptr<Lab> lab_;
  Job job_;
};

// Pairs of neighbours, as the forged llama has them.
Alteration rotated(std::function<double(double)> angle_as, std::function<double(double)> part_as,
                   int64_t heads) {
  return [=](doctor::Altered& altered, size_t op) {
    const auto rope = std::get<op::Rope>(altered.op(op).what);
    LS_CHECK(rope.pairing == op::Rope::Pairing::kAdjacent);
    altered.deviation(op).row = [=](InputRows in, int64_t position, std::span<double> out) {
      std::ranges::copy(in[0], out.begin());
      const auto frequencies = op::rope_frequencies(rope);
      for (int64_t head = 0; head < std::min(heads, std::ssize(out) / rope.head_size); ++head)
        for (int64_t pair = 0; pair < rope.dims / 2; ++pair) {
          const auto at = static_cast<size_t>(head * rope.head_size + 2 * pair);
          const double angle =
              angle_as(static_cast<double>(position) * frequencies[static_cast<size_t>(pair)]);
          const double c = part_as(std::cos(angle));
          const double s = part_as(std::sin(angle));
          out[at] = in[0][at] * c - in[0][at + 1] * s;
          out[at + 1] = in[0][at] * s + in[0][at + 1] * c;
        }
    };
    return true;
  };
}

TEST_F(DoctorSlips, Rotations) {
  const auto same = [](double x) { return x; };
  const auto half = [](double x) {
    return static_cast<double>(half_to_float(float_to_half(static_cast<float>(x))));
  };
  const auto bfloat = [](double x) {
    return static_cast<double>(bfloat_to_float(float_to_bfloat(static_cast<float>(x))));
  };
  expect("blk.1.q_rope", "rope.precision", "cosines and sines are rounded to bfloat16",
         rotated(same, bfloat, 99));
  expect("blk.0.k_rope", "rope.precision", "cosines and sines are rounded to half precision",
         rotated(same, half, 99));
  expect("blk.1.k_rope", "rope.precision", "angles are rounded to half precision",
         rotated(half, same, 99));
  expect("blk.0.q_rope", "rope.precision", "angles are rounded to bfloat16",
         rotated(bfloat, same, 99));
  expect("blk.0.q_rope", "rope.missing", "the first 2 of 4 heads alone", rotated(same, same, 2));
  expect("blk.1.q_rope", "rope.missing", "the first 1 of 4 heads alone", rotated(same, same, 1));
  expect("blk.1.k_rope", "rope.scaling", "it rotates twice",
         rotated([](double x) { return 2 * x; }, same, 99));
}

TEST_F(DoctorSlips, Sums) {
  const auto sum = [](double first, double second) {
    return by_hand([=](InputRows in, int64_t, std::span<double> out) {
      for (size_t i = 0; i < out.size(); ++i) out[i] = first * in[0][i] + second * in[1][i];
    });
  };
  expect("blk.1.attn_residual", "residual.input", "it adds blk.1.attn_out twice", sum(1, 2));
  expect("blk.1.output", "residual.input", "it adds blk.1.attn_residual twice", sum(2, 1));
  expect("blk.0.output", "residual.input", "it takes blk.0.ffn_out off", sum(1, -1));
}

TEST_F(DoctorSlips, NormsAndInputs) {
  expect("blk.1.ffn_norm", "norm.kind", "with the weight twice",
         doctor::norm_weight([](float w) { return w * w; }));
  expect("blk.1.ffn_norm", "input.other", "it reads blk.0.output in place of blk.1.attn_residual",
         [](doctor::Altered& altered, size_t op) {
           const op::Program& program = altered.program();
           for (size_t i = 0; i < program.ops.size(); ++i)
             if (program.value(program.ops[i].outputs[0]).name == "blk.0.output")
               return doctor::reads_value(0, program.ops[i].outputs[0])(altered, op);
           return false;
         });
  expect("final_norm", "weight.other_tensor",
         "it uses blk.1.ffn_norm.weight in place of output_norm.weight",
         [](doctor::Altered& altered, size_t op) {
           for (const op::Op& other : altered.program().ops)
             if (const op::Weight* weight = doctor::weight_of(other);
                 weight != nullptr && weight->name == "blk.1.ffn_norm.weight")
               return doctor::other_weight(*weight)(altered, op);
           return false;
         });
  expect("blk.0.attn_norm", "columns.permuted", "are other columns",
         doctor::output_columns([](int64_t count) {
           std::vector<int64_t> out;
           for (int64_t i = 0; i < count; ++i) out.push_back((i + 3) % count);
           return out;
         }));
}

// Most numbers may be cut off, but not all: then they say nothing.
TEST_F(DoctorSlips, Limits) {
  expect("blk.1.output", "activation.clamp", "cut off at 0.5", doctor::limited(0.5));
  const auto found = diagnose(
      "blk.1.ffn_act",
      by_hand([](InputRows, int64_t, std::span<double> out) { std::ranges::fill(out, 0.25); }));
  ASSERT_EQ(found.size(), 1U) << tell(found);
  EXPECT_EQ(found[0].cause, doctor::kUnknown) << found[0].text;
}

TEST_F(DoctorSlips, LogitsThatAreNone) {
  const auto normalized = [](bool logarithm) {
    return [=](doctor::Altered& altered, size_t op) {
      altered.deviation(op).gives = [=](std::span<double> row) {
        double sum = 0;
        for (const double x : row) sum += std::exp(x);
        for (double& x : row) x = logarithm ? x - std::log(sum) : std::exp(x) / sum;
      };
      return true;
    };
  };
  expect("logits", "logits.normalized", "logarithms of probabilities", normalized(true));
  expect("logits", "logits.normalized", "they are probabilities", normalized(false));
}

TEST_F(DoctorSlips, MasksThatAreNumbers) {
  for (const double hidden : {-3.0, -7.5}) {
    const auto found = diagnose("blk.1.attn_mix", doctor::hidden_as(hidden));
    ASSERT_EQ(found.size(), 1U) << tell(found);
    EXPECT_EQ(found[0].cause, "attention.mask") << found[0].text;
    ASSERT_EQ(found[0].parameters.size(), 1U);
    EXPECT_EQ(found[0].parameters[0].name, "hidden");
    EXPECT_NEAR(std::get<double>(found[0].parameters[0].value), hidden, 0.01);
  }
}

// Keys of a cache that are mixed up: the scores tell which.
TEST_F(DoctorSlips, KeysOfOtherPositions) {
  job_.checkpoints = "all";
  const auto cache = [](std::map<int64_t, int64_t> places) {
    return [=](doctor::Altered& altered, size_t op) {
      altered.deviation(op).reads = [=](size_t input, int64_t position) {
        const auto found = places.find(position);
        return input != 1 || found == places.end() ? position : found->second;
      };
      return true;
    };
  };
  expect("blk.1.attn_mix", "cache.stale", "keys of positions 2, 4 are those of other positions",
         cache({{2, 0}, {4, 1}}));
  expect(
      "blk.0.attn_mix", "cache.missing", "keys of positions 1, 3, 4 are zeros",
      cache({{1, op::Deviation::kZeros}, {3, op::Deviation::kZeros}, {4, op::Deviation::kZeros}}));
  expect("blk.1.attn_mix", "cache.position", "that of 3 is the key of 1",
         cache({{3, 1}, {4, 2}, {5, 3}}));
}

TEST_F(DoctorSlips, WeightsOfExperts) {
  use("qwen3moe");
  const auto slots = [](std::function<double(size_t slot, const std::vector<double>& right)> how) {
    return [=](doctor::Altered& altered, size_t op) {
      altered.deviation(op).gives = [=](std::span<double> row) {
        const std::vector<double> right(row.begin(), row.end());
        for (size_t slot = 0; slot < row.size(); ++slot) row[slot] = how(slot, right);
      };
      return true;
    };
  };
  using Right = const std::vector<double>&;
  expect("blk.1.ffn_weights", "experts.weights", "count 1",
         slots([](size_t, Right) { return 1.0; }));
  expect("blk.0.ffn_weights", "experts.weights", "count 1 / 3",
         slots([](size_t, Right) { return 1.0 / 3; }));
  expect("blk.1.ffn_weights", "experts.weights", "in reverse order",
         slots([](size_t slot, Right right) { return right[2 - slot]; }));
  expect("blk.1.ffn_weights", "experts.weights", "only number 1 counts",
         slots([](size_t slot, Right right) { return slot == 0 ? right[0] : 0; }));
  expect("blk.0.ffn_weights", "experts.weights", "a second softmax",
         slots([](size_t slot, Right right) {
           double sum = 0;
           for (const double each : right) sum += std::exp(each);
           return std::exp(right[slot]) / sum;
         }));
}

TEST_F(DoctorSlips, SumsOfExperts) {
  use("qwen3moe");
  const auto sum = [](std::function<double(size_t slot, double weight)> share) {
    return by_hand([=](InputRows in, int64_t, std::span<double> out) {
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = 0;
        for (size_t slot = 0; slot < in[0].size(); ++slot)
          out[i] += share(slot, in[0][slot]) * in[1][slot * out.size() + i];
      }
    });
  };
  expect("blk.1.ffn_out", "experts.weights", "count 1", sum([](size_t, double) { return 1.0; }));
  expect("blk.0.ffn_out", "experts.weights", "only number 3 counts",
         sum([](size_t slot, double weight) { return slot == 2 ? weight : 0; }));
  expect("blk.1.ffn_expert_gate", "weight.other_tensor", "it uses blk.1.ffn_up_exps.weight",
         [](doctor::Altered& altered, size_t op) {
           for (const op::Op& other : altered.program().ops)
             if (const auto* used = std::get_if<op::ExpertLinear>(&other.what);
                 used != nullptr && used->weight.name == "blk.1.ffn_up_exps.weight")
               return doctor::other_expert_weight(used->weight)(altered, op);
           return false;
         });
}

TEST_F(DoctorSlips, ChoicesOfExperts) {
  use("qwen3moe");
  expect("blk.1.ffn_choice", "experts.choice", "with the least scores", doctor::worst_experts());
  // One that nothing explains is told.
  const auto found = diagnose("blk.1.ffn_choice", [](doctor::Altered& altered, size_t op) {
    altered.deviation(op).takes = [](size_t, std::span<double> row) {
      for (size_t i = 0; i < row.size(); ++i) row[i] = std::sin(50 * row[i]);
    };
    return true;
  });
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].cause, doctor::kUnknown) << found[0].text;
  EXPECT_EQ(found[0].checkpoint, "blk.1.ffn_choice");
  EXPECT_NE(found[0].text.find("hypotheses explains it"), std::string::npos) << found[0].text;
}

}  // namespace
}  // namespace lockstep::engines
