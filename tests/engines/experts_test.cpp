// Mixtures of experts: honest engines pass in every arithmetic and with any order of experts, and
// each mistake of routing is found at its checkpoint.
#include <functional>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lab.h"

namespace lockstep::engines {
namespace {

using parity::Order;

std::vector<Style> routed_styles() {
  return {{.name = "f32"},
          {.name = "f32, experts by number", .order = Order::kLanes8, .experts_in_order = true},
          {.name = "f64 recorded in f32", .doubles = true, .shows_floats = true},
          {.name = "f16 activations", .order = Order::kBlocks32, .activations = DType::kF16},
          {.name = "bf16 activations", .activations = DType::kBF16, .experts_in_order = true},
          {.name = "int8", .int8 = true},
          {.name = "e4m3 by row", .products = "e4m3:row"},
          {.name = "int8 by tensor", .products = "int8:tensor", .weights = "bf16"}};
}

class Routing : public testing::TestWithParam<std::string> {
 protected:
  Routing() {
    forge::Spec spec{.arch = GetParam(),
                     .layers = 2,
                     .width = 64,
                     .heads = 4,
                     .kv_heads = 2,
                     .feed_forward = 96,
                     .experts = 9,
                     .experts_used = 3,
                     .expert_feed_forward = 32,
                     .vocabulary = 67,
                     .type = GetParam() == "olmoe" ? "q8_0" : "f32",
                     .seed = std::random_device{}()};
    if (spec.arch == "deepseek2") {
      spec.head_size = 24;
      spec.rope_dims = 8;
      spec.latent = 32;
      spec.query_latent = 48;
      spec.expert_groups = 3;
      spec.expert_groups_used = 2;
      spec.sigmoid_experts = spec.biases = true;
    }
    RecordProperty("seed", std::to_string(spec.seed));
    seed_ = spec.seed;
    lab_ = std::make_unique<Lab>(Lab::forged(spec));
    job_.prompt = 8;
    job_.tokens = random_tokens(seed_, 12, 67);
  }

  static std::string describe_defect(const parity::Comparison& c) {
    if (!c.first_defect) return c.verdict;
    const auto& d = *c.first_defect;
    return fmt::format("{}: {} at {}, ratio {:.3g}, error {:.3g}, expected {:.3g}", c.verdict,
                       d.checkpoint, d.position, d.own.ratio(), d.own.error, d.own.expected);
  }

  uint64_t seed_ = 0;
  std::unique_ptr<Lab> lab_;
  Job job_;
};

TEST_P(Routing, HonestEnginesPass) {
  // The last has no choice of experts, which is derived.
  for (const std::string set : {"ops", "layers", "blk.*.ffn_norm,blk.*.ffn_out,*output,logits"}) {
    job_.checkpoints = set;
    const op::Program program = lab_->program(job_);
    const auto reference = lab_->record(job_, {.name = "f64", .doubles = true}, program);
    for (const Style& style : routed_styles()) {
      SCOPED_TRACE(fmt::format("{}, {}, seed {}", style.name, set, seed_));
      const auto found = lab_->compare(reference, lab_->record(job_, style, program));
      EXPECT_TRUE(found.parity) << describe_defect(found);
      EXPECT_EQ(found.judged, 1);
    }
  }
}

TEST_P(Routing, MistakesAreFound) {
  struct WrongRouting {
    const char* name;
    const char* checkpoint;
    std::function<void(op::Op&)> make;
  };
  const std::vector<WrongRouting> mistakes = {
      {"other normalization", "blk.1.ffn_weights",
       [](op::Op& op) {
         auto& weigh = std::get<op::Weigh>(op.what);
         weigh.normalize = !weigh.normalize;
       }},
      {"a scale that is left out", "blk.1.ffn_weights",
       [](op::Op& op) { std::get<op::Weigh>(op.what).scale = 1.01; }},
      {"the other function of the router", "blk.1.ffn_weights",
       [](op::Op& op) {
         auto& scoring = std::get<op::Weigh>(op.what).scoring;
         scoring = scoring == op::Scoring::kSoftmax ? op::Scoring::kSigmoid : op::Scoring::kSoftmax;
       }},
      {"other groups of experts", "blk.1.ffn_choice",
       [](op::Op& op) {
         auto& choose = std::get<op::Choose>(op.what);
         choose.groups = choose.groups > 1 ? 1 : 3;
         choose.groups_used = 1;
       }},
      {"the next expert", "blk.1.ffn_expert_up",
       [](op::Op& op) {
         auto& all = std::get<op::ExpertLinear>(op.what);
         const auto bytes = static_cast<size_t>(all.rows() * all.weight.row_bytes());
         all.weight.data = all.weight.data.subspan(bytes);
         all.weight.rows -= all.rows();
         --all.experts;
       }},
  };
  job_.checkpoints = "ops";
  const op::Program program = lab_->program(job_);
  const auto reference = lab_->record(job_, {.name = "f64", .doubles = true}, program);
  for (const WrongRouting& mistake : mistakes) {
    SCOPED_TRACE(fmt::format("{}, seed {}", mistake.name, seed_));
    op::Program wrong = program;
    for (op::Op& op : wrong.ops)
      if (wrong.value(op.outputs[0]).name == mistake.checkpoint) mistake.make(op);
    const auto found = lab_->compare(reference, lab_->record(job_, {.name = "f32"}, wrong));
    ASSERT_TRUE(found.first_defect) << found.verdict;
    EXPECT_EQ(found.first_defect->checkpoint, mistake.checkpoint) << describe_defect(found);
    EXPECT_EQ(found.first_defect->side, parity::Side::kSuspect);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Routing,
                         testing::Values("llama", "qwen2moe", "qwen3moe", "olmoe", "gpt-oss",
                                         "deepseek2"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::engines
