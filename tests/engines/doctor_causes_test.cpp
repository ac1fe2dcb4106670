// Causes that the corpus of bugs does not have, several at once, and what one mistake in all layers
// is told as.
#include <atomic>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"
#include "clinic.h"
#include "op/activation.h"

namespace lockstep::engines {
namespace {

using doctor::Alteration;
using doctor::Diagnosis;
using parity::Order;

struct Mistaken {
  std::string value;
  Alteration alteration;
};

class Doctor : public testing::Test {
 protected:
  Doctor() { use("llama"); }

  void use(const std::string& arch, const std::function<void(forge::Spec&)>& alter = {}) {
    forge::Spec spec{.arch = arch,
                     .layers = 3,
                     .width = 44,
                     .heads = 4,
                     .kv_heads = arch == "gpt2" ? 4 : 2,
                     .head_size = 12,
                     .feed_forward = 37,
                     .vocabulary = 71,
                     .context = 64,
                     .biases = true,
                     .type = "f32",
                     .seed = 23};
    if (alter) alter(spec);
    lab_ = std::make_unique<Lab>(Lab::forged(spec));
    job_.prompt = 7;
    job_.tokens = random_tokens(41, 11, 71);
    job_.checkpoints = "ops";
  }

  std::vector<Diagnosis> diagnose(const std::vector<Mistaken>& planted, int depth = 3) {
    Patient patient(lab_->program(job_));
    for (const auto& [value, alteration] : planted)
      LS_CHECK(alteration(patient.altered, *patient.find(value, -1)), "{}", value);
    return diagnose(patient, depth);
  }

  std::vector<Diagnosis> diagnose(const Patient& patient, int depth = 3) {
    const op::Program program = lab_->program(job_);
    const auto honest = lab_->record(job_, {.order = Order::kPairwise}, program);
    const auto suspect = lab_->record(job_, {.order = Order::kLanes8}, patient);
    return engines::diagnose(*lab_, honest, suspect,
                             {.depth = depth,
                              .seconds = 60,
                              .device = device_,
                              .interrupted = interrupted_ ? &*interrupted_ : nullptr})
        .diagnoses;
  }

  void expect(const std::string& value, const std::string& cause, const Alteration& alteration) {
    SCOPED_TRACE(fmt::format("{} at {}", cause, value));
    const auto found = diagnose({{value, alteration}});
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.front().cause, cause) << found.front().text;
    EXPECT_EQ(found.front().explained, found.front().rows) << found.front().text;
    EXPECT_EQ(found.size(), 1U) << found.back().text;
  }

  template <class T>
  T parameter(const Diagnosis& diagnosis, const std::string& name) {
    for (const doctor::Parameter& each : diagnosis.parameters)
      if (each.name == name) return std::get<T>(each.value);
    ADD_FAILURE() << "no parameter " << name;
    return {};
  }

  std::unique_ptr<Lab> lab_;
  Job job_;
  std::shared_ptr<exec::f64::Products> device_;  // the doctor's
  std::optional<std::atomic<bool>> interrupted_;
};

// Does the work on the CPU, and counts the tasks.
class CountingDevice : public exec::f64::ProductDevice {
 public:
  explicit CountingDevice(int& tasks) : tasks_(tasks) {}

  Result<void> run(const exec::f64::Task& task, int threads, const exec::f64::Take& take) override {
    ++tasks_;
    exec::f64::cpu_products().run(task, threads, take);
    return {};
  }

 private:
  int& tasks_;
};

doctor::Columns zeros(int64_t first, int64_t last) {
  return [=](int64_t count) {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < count; ++i)
      out.push_back(i >= first && i < last ? op::Deviation::kZeros : i);
    return out;
  };
}

std::vector<int64_t> shuffled(int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back((i * 5 + 3) % count);
  return out;
}

TEST_F(Doctor, Norms) {
  expect("blk.1.attn_norm", "norm.weight_offset",
         doctor::norm_weight([](float w) { return 1 + w; }));
  expect("blk.1.ffn_norm", "norm.kind", doctor::other_norm_kind());
  expect("final_norm", "norm.missing", doctor::passes_on(0));
  expect("blk.2.attn_norm", "norm.epsilon", doctor::epsilon(0.037));
  expect("blk.2.attn_norm", "scale.value", doctor::times(1.7));
}

TEST_F(Doctor, Experts) {
  const auto with_experts = [](forge::Spec& spec) {
    spec.experts = 9;
    spec.experts_used = 3;
    spec.expert_feed_forward = 21;
  };
  const auto normalization = doctor::weigh([](op::Weigh& weigh) {
    weigh.normalize = !weigh.normalize;
    return true;
  });
  const auto scoring = doctor::weigh([](op::Weigh& weigh) {
    weigh.scoring =
        weigh.scoring == op::Scoring::kSoftmax ? op::Scoring::kSigmoid : op::Scoring::kSoftmax;
    return true;
  });
  use("qwen3moe", with_experts);
  expect("blk.1.ffn_weights", "experts.normalization", normalization);
  expect("blk.1.ffn_weights", "experts.scoring", scoring);
  expect("blk.0.ffn_expert_gate", "experts.index", doctor::weights_of_expert(1));
  expect("blk.2.ffn_expert_out", "experts.index", doctor::weights_of_expert(-1));
  expect("blk.1.ffn_choice", "experts.choice", doctor::skipped_experts(1));
  expect("blk.1.ffn_choice", "experts.choice", doctor::expert_numbers(1));
  use("qwen2moe", with_experts);
  expect("blk.1.ffn_weights", "experts.normalization", normalization);
  expect("blk.1.ffn_out", "experts.shared_missing", doctor::passes_on(0));
  expect("blk.0.ffn_out", "experts.chosen_missing", doctor::passes_on(1));
  const op::Program program = lab_->program(job_);
  for (size_t i = 0; i < program.values.size(); ++i)
    if (program.values[i].name == "blk.1.ffn_shared_out")
      expect("blk.1.ffn_out", "experts.gate_missing",
             doctor::reads_value(1, static_cast<op::ValueId>(i)));
}

TEST_F(Doctor, CorrectedAndGroupedExperts) {
  use("deepseek2", [](forge::Spec& spec) {
    spec.rope_dims = 4;
    spec.experts = 12;
    spec.experts_used = 3;
    spec.expert_feed_forward = 21;
    spec.expert_groups = 4;
    spec.expert_groups_used = 2;
    spec.expert_scale = 2.5;
    spec.sigmoid_experts = true;
  });
  const op::Program program = lab_->program(job_);
  for (const op::Op& op : program.ops)
    if (const auto* choose = std::get_if<op::Choose>(&op.what); choose != nullptr && op.layer == 1)
      expect("blk.1.ffn_weights", "experts.bias_in_weights", doctor::biased_weights(*choose->bias));
  expect("blk.1.ffn_weights", "experts.scale", doctor::weigh([](op::Weigh& weigh) {
           weigh.scale = 1;
           return true;
         }));
  expect("blk.1.ffn_choice", "experts.choice", doctor::choose([](op::Choose& choose) {
           choose.groups = choose.groups_used = 1;
           return true;
         }));
}

TEST_F(Doctor, LatentAttention) {
  use("deepseek2", [](forge::Spec& spec) {
    spec.rope_dims = 4;
    spec.value_size = 7;
    spec.query_latent = 19;
    spec.latent = 23;
  });
  expect("blk.1.kv_a_norm", "norm.missing", doctor::passes_on(0));
  expect("blk.0.q_a_norm", "norm.weight_missing", doctor::norm_weight([](float) { return 1.0F; }));
  expect("blk.1.q_last", "slices.swapped", doctor::head_part_first(0));
  expect("blk.2.q_rope", "slices.swapped", doctor::head_part_first(4));
  expect("blk.1.k_last", "slices.swapped", doctor::slice_first(0));
  expect("blk.1.kv_a_own", "slices.swapped", doctor::slice_first(4));
  expect("blk.0.k_pe", "rope.pairing", doctor::other_pairing());
  expect("blk.1.attn_mix", "attention.scale", doctor::attention_scale(1 / std::sqrt(7.0)));
}

TEST_F(Doctor, AFactorOfTheBranchOnTheSum) {
  use("granite", [](forge::Spec& spec) { spec.residual_scale = 0.22; });
  expect("blk.1.attn_residual", "residual.scale_of_sum", doctor::scaled_sum());
  expect("blk.0.output", "residual.scale_of_sum", doctor::scaled_sum());
}

TEST_F(Doctor, Rotations) {
  const auto rope = [](const std::function<void(op::Rope&)>& change) {
    return doctor::rope([=](op::Rope& own) {
      change(own);
      return true;
    });
  };
  expect("blk.0.q_rope", "rope.direction", doctor::counted_as([](int64_t p) { return -p; }));
  expect("blk.1.k_rope", "rope.magnitude", rope([](op::Rope& own) { own.magnitude = 1.23; }));
  expect("blk.1.q_rope", "rope.dims", doctor::rope_dims(6));
  expect("blk.2.q_rope", "rope.base", doctor::rope_base(123456));
  expect("blk.2.k_rope", "rope.base", doctor::rope_base(777));
  expect("blk.0.q_rope", "rope.scaling", rope([](op::Rope& own) { own.position_scale = 0.37; }));
  expect("blk.0.k_rope", "rope.position", doctor::position_offset(17));
  expect("blk.0.k_rope", "rope.position",
         doctor::counted_as([](int64_t p) { return p < 7 ? p : p - 7; }));
  expect("blk.0.k_rope", "rope.position",
         doctor::counted_as([](int64_t p) { return p < 7 ? p : p + 1; }));
}

TEST_F(Doctor, NumbersAreFound) {
  const auto base = diagnose({{"blk.2.q_rope", doctor::rope_base(123456)}});
  EXPECT_NEAR(parameter<double>(base[0], "value"), 123456, 10);
  EXPECT_TRUE(base[0].proved);
  const auto scale = diagnose({{"blk.1.attn_mix", doctor::attention_scale(0.2345)}});
  EXPECT_EQ(scale[0].cause, "attention.scale");
  EXPECT_NEAR(parameter<double>(scale[0], "value"), 0.2345, 1e-5);
  const auto epsilon = diagnose({{"blk.1.ffn_norm", doctor::epsilon(0.5)}});
  EXPECT_NEAR(parameter<double>(epsilon[0], "value"), 0.5, 1e-4);
  const auto window = diagnose({{"blk.0.attn_mix", doctor::window(5)}});
  EXPECT_EQ(window[0].cause, "attention.window");
  EXPECT_EQ(parameter<int64_t>(window[0], "value"), 5);
}

TEST_F(Doctor, Attention) {
  expect("blk.1.attn_mix", "attention.soft_cap", doctor::soft_cap(0.73));
  expect("blk.1.attn_mix", "attention.heads_permuted", doctor::output_columns([](int64_t count) {
           std::vector<int64_t> out;
           for (int64_t i = 0; i < count; ++i) out.push_back((i + 12) % count);
           return out;
         }));
  expect("blk.2.attn_mix", "attention.head_map",
         doctor::kv_head([](const op::Attention&, int64_t) { return 0; }));
  expect("blk.1.attn_mix", "cache.missing",
         doctor::cache_row(doctor::kKeysAndValues, 4, op::Deviation::kZeros));
  expect("blk.0.attn_mix", "cache.missing",
         doctor::cache_row(doctor::kKeys, 8, op::Deviation::kZeros));
  expect("blk.0.attn_mix", "cache.stale", doctor::cache_row(doctor::kKeysAndValues, 9, 0));
  expect("blk.0.attn_mix", "attention.mask",
         doctor::sees([](const op::Attention&, int64_t position, int64_t key) {
           return key <= position && (key > 0 || position == 0);
         }));
}

TEST_F(Doctor, SinksAndTheirActivation) {
  use("gpt-oss", [](forge::Spec& spec) {
    spec.rope_scaling = {forge::RopeScaling::Kind::kYarn, 4, 64};
    spec.window = 5;
  });
  expect("blk.1.attn_mix", "attention.sinks", doctor::without_sinks());
  expect("blk.0.attn_mix", "attention.sinks",
         doctor::other_sinks([](size_t head, const std::vector<float>& own) {
           return own[(head + 1) % own.size()];
         }));
  expect("blk.1.q_rope", "rope.scaling", doctor::rope([](op::Rope& rope) {
           rope.yarn->whole_pairs = true;
           return true;
         }));
  expect("blk.0.ffn_expert_act", "activation.kind", doctor::activation(op::Activate::Kind::kSilu));
  expect("blk.2.ffn_expert_act", "activation.kind",
         doctor::gated_formula(
             [](op::Activate::Kind kind, double gate, double up) {
               return op::activated(kind, gate) * std::clamp(up, -7.0, 7.0);
             },
             "without 1"));
}

// A row that sees nothing is 0/0, which is no other mistake.
TEST_F(Doctor, AMaskThatLeavesNothing) {
  expect("blk.1.attn_mix", "attention.mask",
         doctor::sees(
             [](const op::Attention&, int64_t position, int64_t key) { return key < position; }));
}

TEST_F(Doctor, Weights) {
  expect("blk.1.ffn_up", "weight.other_tensor",
         doctor::other_weight(*doctor::weight_of(
             lab_->program(job_).ops[*Patient(lab_->program(job_)).find("blk.1.ffn_gate", -1)])));
  expect("blk.1.ffn_out", "weight.rows", doctor::output_columns(shuffled));
  expect("blk.1.q", "weight.rows", doctor::output_columns(zeros(5, 6)));
  expect("blk.1.ffn_up", "weight.shard", doctor::output_columns(zeros(0, 18)));
  expect("blk.0.ffn_out", "weight.shard", doctor::input_columns(zeros(32, 37)));
  expect("blk.0.q", "weight.shard", doctor::input_columns(zeros(22, 44)));
}

TEST_F(Doctor, ReplaysByTheDeviceThatItIsGiven) {
  int tasks = 0;
  device_ = std::make_shared<exec::f64::Products>(std::make_unique<CountingDevice>(tasks), 0);
  expect("blk.1.ffn_out", "weight.rows", doctor::output_columns(shuffled));
  EXPECT_GT(tasks, 0);
}

TEST_F(Doctor, FeedForwardAndRows) {
  expect("blk.1.ffn_act", "activation.kind",
         doctor::activation_function([](double x) { return x / (1 + std::exp(-1.702 * x)); }));
  expect("blk.1.ffn_act", "activation.kind",
         doctor::activation_function([](double x) { return std::max(x, 0.0); }));
  expect("blk.1.ffn_act", "activation.clamp", doctor::limited(0.25));
  expect("blk.2.ffn_out", "row.swapped", doctor::result_of([](int64_t p) {
           return p == 3 ? 5 : p == 5 ? 3 : p;
         }));
  expect("blk.2.v", "row.stale", doctor::result_of([](int64_t p) { return p == 6 ? 1 : p; }));
  expect("embedding", "tokens.shifted",
         doctor::reads_rows([](int64_t p) { return std::max<int64_t>(0, p - 1); }));
  expect("embedding", "embedding.row", doctor::token_offset(-1));
}

TEST_F(Doctor, OtherArchitectures) {
  use("gpt2");
  expect("position_embedding", "embedding.position", doctor::position_offset(2));
  expect("embedding", "embedding.position", doctor::passes_on(0));
  expect("blk.1.attn_norm", "norm.kind", doctor::other_norm_kind());
  use("granite", [](forge::Spec& spec) {
    spec.embedding_scale = 12;
    spec.residual_scale = 0.22;
    spec.logit_scale = 8;
  });
  expect("embedding", "scale.value", doctor::scale_factor(6.63));
  expect("blk.1.ffn_out_scaled", "scale.value", doctor::scale_factor(0.31));
  use("qwen3");
  expect("blk.1.q", "norm.kind", doctor::norm_group([](int64_t, int64_t width) { return width; }));
}

TEST_F(Doctor, OneMistakeInAllLayersIsToldOnce) {
  std::vector<Mistaken> planted;
  for (int64_t layer = 0; layer < 3; ++layer)
    for (const char* name : {"q_rope", "k_rope"})
      planted.push_back({fmt::format("blk.{}.{}", layer, name), doctor::other_pairing()});
  for (const char* set : {"ops", "all", "layers", "logits"}) {
    SCOPED_TRACE(set);
    job_.checkpoints = set;
    const auto found = diagnose(planted);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].cause, "rope.pairing") << found[0].text;
    EXPECT_EQ(found[0].layers, (std::vector<int64_t>{0, 1, 2}));
    EXPECT_EQ(found[0].explained, found[0].rows);
    EXPECT_EQ(found[0].proved, set == std::string("ops") || set == std::string("all"));
    EXPECT_TRUE(found[0].alternatives.empty());
  }
}

TEST_F(Doctor, SeveralMistakes) {
  // Each in its own op.
  const auto each = diagnose({{"blk.0.q_rope", doctor::rope_base_times(3)},
                              {"blk.1.ffn_norm", doctor::passes_on(0)},
                              {"logits", doctor::reweigh(doctor::column_major)}});
  ASSERT_EQ(each.size(), 3U);
  EXPECT_EQ(each[0].cause, "rope.base");
  EXPECT_EQ(each[1].cause, "norm.missing");
  EXPECT_EQ(each[2].cause, "weight.layout");
  // No more than asked for.
  EXPECT_EQ(diagnose({{"blk.0.q_rope", doctor::rope_base_times(3)},
                      {"blk.1.ffn_norm", doctor::passes_on(0)}},
                     1)
                .size(),
            1U);
  // Two in one op, on the same rows.
  const auto both = diagnose(
      {{"blk.1.q", doctor::bias_times(0)}, {"blk.1.q", doctor::reweigh(doctor::column_major)}});
  ASSERT_EQ(both.size(), 2U) << both[0].text;
  EXPECT_EQ(both[0].explained, both[0].rows);
  std::vector<std::string> causes = {both[0].cause, both[1].cause};
  std::ranges::sort(causes);
  EXPECT_EQ(causes, (std::vector<std::string>{"bias.missing", "weight.layout"}));
  // One on all rows and one on a single row.
  const auto rows =
      diagnose({{"blk.1.k", doctor::bias_times(2)},
                {"blk.1.k", doctor::result_of([](int64_t p) { return p == 4 ? 2 : p; })}});
  ASSERT_EQ(rows.size(), 2U) << rows[0].text;
  EXPECT_EQ(rows[0].cause, "bias.twice");
  EXPECT_EQ(rows[1].cause, "row.stale");
  // Two in a layer of which only the output is known.
  job_.checkpoints = "layers";
  const auto stretch = diagnose({{"blk.1.ffn_act", doctor::keeps_inputs({1, 0})},
                                 {"blk.1.attn_mix", doctor::attention_scale(1)}});
  ASSERT_EQ(stretch.size(), 2U) << stretch[0].text;
  causes = {stretch[0].cause, stretch[1].cause};
  std::ranges::sort(causes);
  EXPECT_EQ(causes, (std::vector<std::string>{"activation.inputs_swapped", "attention.scale"}));
}

// The op is wrong, and what is left of it is rounding that is not declared.
TEST_F(Doctor, AMistakeAndRoundingInOneOp) {
  const op::Program program = lab_->program(job_);
  Patient patient(program);
  const size_t op = *patient.find("blk.1.ffn_out", -1);
  ASSERT_TRUE(doctor::bias_times(0)(patient.altered, op));
  patient.quirks.push_back({Quirk::Kind::kHalfInput, program.ops[op].outputs[0], -1});
  const auto found = diagnose(patient);
  ASSERT_EQ(found.size(), 2U) << found[0].text;
  EXPECT_EQ(found[0].cause, "bias.missing");
  EXPECT_EQ(found[0].explained, found[0].rows);
  EXPECT_LE(found[0].ratio_after, 1);
  EXPECT_EQ(found[1].cause, "precision.operands");
  EXPECT_EQ(parameter<std::string>(found[1], "type"), "f16");
  EXPECT_EQ(found[1].explained, found[1].rows);
  EXPECT_NE(found[1].text.find("although its manifest says f32"), std::string::npos)
      << found[1].text;
}

// One that is known and one that is not: the first is named, and the rest is not called right.
TEST_F(Doctor, WhatIsLeftIsUnknown) {
  Random random(29);
  const auto shaken = doctor::reweigh([&](const op::Weight& weight) {
    std::vector<float> out = doctor::decode(weight);
    for (float& number : out) number *= 1 + 1e-4F * static_cast<float>(random.uniform());
    return out;
  });
  for (const char* set : {"ops", "layers"}) {
    SCOPED_TRACE(set);
    job_.checkpoints = set;
    const auto found = diagnose(
        {{"blk.1.ffn_out", doctor::reweigh(doctor::column_major)}, {"blk.1.ffn_out", shaken}}, 1);
    ASSERT_EQ(found.size(), 2U) << found[0].text;
    EXPECT_EQ(found[0].cause, "weight.layout");
    EXPECT_FALSE(found[0].proved);
    EXPECT_EQ(found[0].explained, 0);
    EXPECT_GT(found[0].ratio_before, 100 * found[0].ratio_after);
    EXPECT_NE(found[0].text.find("what is left has another cause"), std::string::npos)
        << found[0].text;
    EXPECT_EQ(found[1].cause, "unknown");
    EXPECT_NE(found[1].text.find("of what weight.layout leaves the cause is not known"),
              std::string::npos)
        << found[1].text;
  }
}

// Unknown ones do not use up the depth.
TEST_F(Doctor, UnknownMistakesHideNone) {
  const auto strange = doctor::reweigh([](const op::Weight& weight) {
    std::vector<float> out = doctor::decode(weight);
    for (size_t i = 0; i < out.size(); i += 3) out[i] = -out[i];
    return out;
  });
  const auto found = diagnose(
      {{"blk.0.q", strange}, {"blk.0.ffn_up", strange}, {"blk.1.ffn_norm", doctor::passes_on(0)}},
      1);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].cause, "unknown");
  EXPECT_EQ(found[1].cause, "unknown");
  EXPECT_EQ(found[2].cause, "norm.missing");
}

// Hypotheses are put on top of each other: a rotation keeps as many factors as it has pairs.
TEST_F(Doctor, FactorsFitTheirRotation) {
  use("llama", [](forge::Spec& spec) {
    spec.rope_factors = {forge::RopeFactors::Kind::kShared, 8, 16};
  });
  Patient patient(lab_->program(job_));
  const size_t op = *patient.find("blk.0.q_rope", -1);
  const auto factors = std::get<op::Rope>(patient.altered.op(op).what).factors;
  ASSERT_EQ(factors.size(), 6U);
  ASSERT_TRUE(doctor::rope_dims(8)(patient.altered, op));
  EXPECT_FALSE(doctor::rope([&](op::Rope& rope) {
    rope.factors = factors;
    return true;
  })(patient.altered, op));
  EXPECT_EQ(std::get<op::Rope>(patient.altered.op(op).what).factors.size(), 4U);
}

TEST_F(Doctor, AnInterruptEndsTheSearch) {
  const std::vector<Mistaken> planted = {{"blk.1.q_rope", doctor::rope_base(123)}};
  EXPECT_EQ(diagnose(planted).size(), 1U);
  interrupted_.emplace(true);
  EXPECT_TRUE(diagnose(planted).empty());
}

TEST_F(Doctor, WhatNothingExplainsIsUnknown) {
  // A sum with a sign that depends on the column is no mistake that anybody knows.
  const auto strange = diagnose({{"blk.1.ffn_out", doctor::reweigh([](const op::Weight& weight) {
                                    std::vector<float> out = doctor::decode(weight);
                                    Random random(3);
                                    for (float& number : out)
                                      if (random.uniform() < 0.3) number = -number;
                                    return out;
                                  })}});
  ASSERT_EQ(strange.size(), 1U);
  EXPECT_EQ(strange[0].cause, "unknown") << strange[0].text;
  EXPECT_EQ(strange[0].explained, 0);
  EXPECT_FALSE(strange[0].proved);
  EXPECT_GT(strange[0].tried, 20);
  EXPECT_NE(strange[0].text.find("none of"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::engines
