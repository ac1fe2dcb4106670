// Mistakes that hide in the rounding of a coarse type are found over all rows together; honest
// engines get no name.
#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "base/test_effort.h"
#include "clinic.h"

namespace lockstep::engines {
namespace {

using doctor::Diagnosis;
using parity::Order;

class DoctorPooled : public testing::TestWithParam<std::string> {
 protected:
  DoctorPooled() {
    RecordProperty("seed", std::to_string(seed_));
    lab_ = std::make_unique<Lab>(Lab::forged({.arch = GetParam(),
                                              .layers = 2,
                                              .width = 64,
                                              .heads = 4,
                                              .kv_heads = GetParam() == "gpt2" ? 4 : 2,
                                              .head_size = 16,
                                              .feed_forward = 96,
                                              .vocabulary = 67,
                                              .biases = true,
                                              .type = "f32",
                                              .seed = seed_}));
    job_.prompt = 20;
    job_.tokens = random_tokens(seed_, 24, 67);
    program_ = lab_->program(job_);
  }

  std::vector<Diagnosis> diagnose(const trace::Trace& suspect, bool search = true) {
    const auto honest = lab_->record(job_, {.order = Order::kPairwise}, program_);
    Diagnosed found = engines::diagnose(*lab_, honest, suspect, {.seconds = 60, .search = search});
    wrong_ = found.wrong();
    return std::move(found.diagnoses);
  }

  uint64_t seed_ = search_seed();
  Random choice_{seed_};
  std::unique_ptr<Lab> lab_;
  Job job_;
  op::Program program_;
  bool wrong_ = false;
};

std::vector<Style> coarse_engines() {
  return {{.name = "f32", .order = Order::kLanes8},
          {.name = "bf16", .activations = DType::kBF16},
          {.name = "f16", .activations = DType::kF16},
          {.name = "f16 cache", .kv = DType::kF16},
          {.name = "int8", .products = "int8:row"},
          {.name = "e4m3", .products = "e4m3:row", .weights = "e4m3:row"},
          {.name = "tf32", .factors = "tf32"}};
}

TEST_P(DoctorPooled, NoNameForHonestEngines) {
  for (const Style& style : coarse_engines()) {
    if (!runs_slow_tests() && style.name != "bf16" && choice_.below(3) != 0) continue;
    const auto diagnoses = diagnose(lab_->record(job_, style, program_));
    EXPECT_TRUE(diagnoses.empty()) << style.name << ", seed " << seed_ << "\n" << tell(diagnoses);
  }
}

// Where coarse types hide mistakes, nobody has to ask; one mistake in all layers is told once.
TEST_P(DoctorPooled, InAllLayersUnasked) {
  Patient patient(program_);
  for (const char* name : {"attn_norm", "ffn_norm"})
    for (int64_t layer = 0; layer < program_.layers; ++layer)
      ASSERT_TRUE(doctor::epsilon_times(100)(patient.altered, *patient.find(name, layer)));
  const auto diagnoses =
      diagnose(lab_->record(job_, {.name = "bf16", .activations = DType::kBF16}, patient), false);
  EXPECT_FALSE(wrong_);
  ASSERT_EQ(diagnoses.size(), 1U) << tell(diagnoses);
  EXPECT_EQ(diagnoses[0].cause, "norm.epsilon") << tell(diagnoses);
  EXPECT_EQ(diagnoses[0].layers, (std::vector<int64_t>{0, 1})) << tell(diagnoses);
  EXPECT_EQ(diagnoses[0].rows, 0);
  EXPECT_FALSE(diagnoses[0].proved);
  // In f32 they have to.
  EXPECT_TRUE(diagnose(lab_->record(job_, {}, program_), false).empty());
}

TEST_P(DoctorPooled, HiddenBugsAreNamed) {
  int hidden = 0;
  int named = 0;
  const Style style{.name = "bf16", .activations = DType::kBF16};
  for (const Bug& bug : bugs()) {
    if (bug.cause.starts_with("precision.") || bug.cause == "garbage" || bug.one_row) continue;
    const bool sure = bug.name == "attn_norm: epsilon x 100";
    if (!runs_slow_tests() && !sure && choice_.below(5) != 0) continue;
    Patient patient(program_);
    if (!bug.make(patient, bug.outside ? -1 : 1, 5)) continue;
    SCOPED_TRACE(fmt::format("{}, seed {}", bug.name, seed_));
    const auto diagnoses = diagnose(lab_->record(job_, style, patient));
    if (wrong_) continue;
    ++hidden;
    for (const Diagnosis& each : diagnoses) {
      const bool right = each.cause == bug.cause ||
                         std::ranges::find(each.alternatives, bug.cause) != each.alternatives.end();
      EXPECT_TRUE(right) << bug.cause << "\n" << tell(diagnoses);
      EXPECT_FALSE(each.proved);
    }
    EXPECT_TRUE(!sure || !diagnoses.empty());
    named += diagnoses.empty() ? 0 : 1;
    if (std::getenv("LOCKSTEP_TABLE") != nullptr)
      fmt::print("{} | {} | {}\n", GetParam(), bug.name,
                 diagnoses.empty() ? "nothing" : diagnoses[0].text);
  }
  if (std::getenv("LOCKSTEP_TABLE") != nullptr)
    fmt::print("{}: {} hidden, {} named\n", GetParam(), hidden, named);
}

// The same of experts, sinks and latent attention: what rounding leads the router to is no mistake.
class DoctorPooledExperts : public testing::TestWithParam<std::string> {};

TEST_P(DoctorPooledExperts, NoNameForHonestEngines) {
  const uint64_t seed = search_seed();
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
                   .type = "f32",
                   .seed = seed};
  if (spec.arch == "deepseek2") {
    spec.head_size = 24;
    spec.rope_dims = 8;
    spec.latent = 32;
    spec.query_latent = 48;
    spec.expert_groups = 3;
    spec.expert_groups_used = 2;
    spec.sigmoid_experts = spec.biases = true;
  }
  Lab lab = Lab::forged(spec);
  Job job{.tokens = random_tokens(seed, 24, 67), .prompt = 20};
  const op::Program program = lab.program(job);
  const auto honest = lab.record(job, {.order = Order::kPairwise}, program);
  for (const Style& style : coarse_engines()) {
    if (!runs_slow_tests() && style.name != "bf16" && style.name != "int8") continue;
    const auto found = engines::diagnose(lab, honest, lab.record(job, style, program),
                                         {.seconds = 60, .search = true});
    EXPECT_TRUE(found.diagnoses.empty()) << style.name << ", seed " << seed << "\n"
                                         << tell(found.diagnoses);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DoctorPooledExperts,
                         testing::Values("qwen3moe", "qwen2moe", "gpt-oss", "deepseek2"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

INSTANTIATE_TEST_SUITE_P(Models, DoctorPooled, testing::Values("llama", "gpt2", "qwen2"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace lockstep::engines
