// Engines that compute in coarser types than their manifests say: the doctor says which, judges by
// that, and finds what else is wrong.
#include <cmath>
#include <random>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/float16.h"
#include "base/random.h"
#include "base/test_effort.h"
#include "clinic.h"
#include "rewrite.h"

namespace lockstep::engines {
namespace {

using doctor::Diagnosis;
using parity::Order;

struct CoarseModel {
  const char* name;
  const char* arch;
  const char* type;
  int64_t width = 64;
};

void PrintTo(const CoarseModel& model, std::ostream* out) {
  *out << model.name;
}

class DoctorPrecisions : public testing::TestWithParam<CoarseModel> {
 protected:
  DoctorPrecisions() {
    const CoarseModel& model = GetParam();
    RecordProperty("seed", std::to_string(seed_));
    lab_ = std::make_unique<Lab>(Lab::forged({.arch = model.arch,
                                              .layers = 4,
                                              .width = model.width,
                                              .heads = 4,
                                              .kv_heads = std::string(model.arch) == "gpt2" ? 4 : 2,
                                              .head_size = model.width / 4,
                                              .feed_forward = model.width > 64 ? model.width : 96,
                                              .vocabulary = 67,
                                              .biases = true,
                                              .type = model.type,
                                              .seed = seed_}));
    job_.prompt = 6;
    job_.tokens = random_tokens(seed_, 9, 67);
    job_.checkpoints = "ops";
    program_ = lab_->program(job_);
  }

  std::vector<Diagnosis> diagnose(const trace::Trace& suspect) {
    const auto honest = lab_->record(job_, {.order = Order::kPairwise}, program_);
    Diagnosed found = engines::diagnose(*lab_, honest, suspect);
    wrong_ = found.wrong();
    return std::move(found.diagnoses);
  }

  std::string tell(const std::vector<Diagnosis>& diagnoses) const {
    return fmt::format("{}, seed {}\n{}", GetParam().name, seed_, engines::tell(diagnoses));
  }

  // Types that give the same numbers here cannot be told apart.
  static bool has_type(const Diagnosis& diagnosis, const std::string& type) {
    return std::ranges::any_of(diagnosis.parameters, [&](const doctor::Parameter& each) {
      const std::string* value = std::get_if<std::string>(&each.value);
      return value != nullptr &&
             ((each.name == "type" && *value == type) ||
              (each.name == "also" && (" " + *value + ",").find(" " + type + ",") != value->npos));
    });
  }

  bool leave_out() { return !runs_slow_tests() && choice_.below(3) != 0; }

  uint64_t seed_ = search_seed();
  Random choice_{seed_};
  std::unique_ptr<Lab> lab_;
  Job job_;
  op::Program program_;
  bool wrong_ = false;
};

struct CoarseStyle {
  Style style;
  std::string cause;
  std::string type;
};

std::vector<CoarseStyle> undeclared() {
  std::vector<CoarseStyle> out;
  const auto add = [&](Style style, const std::string& cause, const std::string& type) {
    style.silent = true;
    style.name = cause + " " + type;
    out.push_back({style, cause, type});
  };
  add({.activations = DType::kBF16}, "precision.result", "bf16");
  add({.order = Order::kLanes8, .activations = DType::kF16}, "precision.result", "f16");
  add({.kv = DType::kF16}, "precision.cache", "f16");
  add({.kv = DType::kBF16}, "precision.cache", "bf16");
  for (const std::string name : {"f16", "bf16", "tf32", "int8:row", "e4m3:row"})
    add({.order = Order::kLanes4, .products = name}, "precision.operands", name);
  add({.factors = "tf32"}, "precision.operands", "tf32");
  return out;
}

TEST_P(DoctorPrecisions, OfTheWholeEngine) {
  for (const CoarseStyle& coarse : undeclared()) {
    if (leave_out()) continue;
    SCOPED_TRACE(fmt::format("{}, seed {}", coarse.style.name, seed_));
    const auto diagnoses = diagnose(lab_->record(job_, coarse.style, program_));
    ASSERT_TRUE(wrong_);
    ASSERT_FALSE(diagnoses.empty());
    bool named = false;
    for (const Diagnosis& each : diagnoses) {
      EXPECT_TRUE(each.cause.starts_with("precision.")) << tell(diagnoses);
      EXPECT_EQ(each.explained, each.rows) << tell(diagnoses);
      EXPECT_TRUE(each.proved) << tell(diagnoses);
      EXPECT_LE(each.ratio_after, 1);
      EXPECT_NE(each.text.find("although its manifest says f32; declare it ("), std::string::npos)
          << tell(diagnoses);
      named = named || (each.cause == coarse.cause && has_type(each, coarse.type));
    }
    EXPECT_TRUE(named) << tell(diagnoses);
    // Keys and values are factors of products too.
    EXPECT_LE(diagnoses.size(), coarse.style.factors.empty() ? 1U : 2U) << tell(diagnoses);
    if (coarse.cause == "precision.result") {
      EXPECT_NE(diagnoses[0].text.find(coarse.type == "bf16" ? "it computes in bfloat16"
                                                             : "it computes in half precision"),
                std::string::npos)
          << tell(diagnoses);
    }
  }
}

TEST_P(DoctorPrecisions, WithLayersAlone) {
  job_.checkpoints = "layers";
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const auto diagnoses =
        diagnose(lab_->record(job_, {.activations = dtype, .silent = true}, program_));
    ASSERT_TRUE(wrong_);
    ASSERT_EQ(diagnoses.size(), 1U) << tell(diagnoses);
    EXPECT_EQ(diagnoses[0].cause, "precision.result") << tell(diagnoses);
    EXPECT_TRUE(has_type(diagnoses[0], std::string(name(dtype)))) << tell(diagnoses);
  }
}

// A mistake behind the rounding is found by the precision that the engine has.
TEST_P(DoctorPrecisions, AndABugBesides) {
  for (const CoarseStyle& coarse : undeclared())
    for (const Bug& bug : bugs()) {
      if (choice_.below(runs_slow_tests() ? 8 : 100) != 0 || bug.subtle || bug.tiny ||
          bug.cause.starts_with("precision.") || bug.cause == "garbage")
        continue;
      Patient patient(program_);
      if (!bug.make(patient, bug.outside ? -1 : 2, 5)) continue;
      SCOPED_TRACE(fmt::format("{}, {}, seed {}", coarse.style.name, bug.name, seed_));
      const auto diagnoses = diagnose(lab_->record(job_, coarse.style, patient));
      ASSERT_FALSE(diagnoses.empty());
      EXPECT_TRUE(std::ranges::any_of(diagnoses, [&](const Diagnosis& each) {
        return each.cause == coarse.cause && has_type(each, coarse.type);
      })) << tell(diagnoses);
      for (const Diagnosis& each : diagnoses) {
        const bool same =
            each.cause == bug.cause ||
            std::ranges::find(each.alternatives, bug.cause) != each.alternatives.end() ||
            (bug.cause == "weight.layout" && each.cause == "weight.transposed");
        EXPECT_TRUE(each.cause.starts_with("precision.") || each.cause == doctor::kUnknown || same)
            << bug.cause << tell(diagnoses);
      }
    }
}

double through_half(double x) {
  return static_cast<double>(half_to_float(float_to_half(static_cast<float>(x))));
}

// As llama.cpp's GELU: numbers that no manifest can say.
TEST_P(DoctorPrecisions, ATableOfTheActivation) {
  const bool gpt2 = std::string(GetParam().arch) == "gpt2";
  const auto table = doctor::activation_function([=](double number) {
    const double x = through_half(number);
    const double y =
        gpt2 ? 0.5 * x * (1 + std::tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x)))
             : x / (1 + std::exp(-x));
    return through_half(y);
  });
  for (const bool everywhere : {true, false}) {
    Patient patient(program_);
    for (int64_t layer = 0; layer < program_.layers; ++layer)
      if (everywhere || layer == 1) {
        ASSERT_TRUE(table(patient.altered, *patient.find("ffn_act", layer)));
      }
    const auto diagnoses = diagnose(lab_->record(job_, {}, patient));
    ASSERT_TRUE(wrong_);
    ASSERT_EQ(diagnoses.size(), 1U) << tell(diagnoses);
    const Diagnosis& only = diagnoses[0];
    EXPECT_EQ(only.cause, "precision.table") << tell(diagnoses);
    EXPECT_TRUE(has_type(only, "f16"));
    EXPECT_EQ(only.layers.size(), everywhere ? 4U : 1U) << tell(diagnoses);
    EXPECT_NE(only.text.find("it looks a function up in a table of half precision although"),
              std::string::npos)
        << only.text;
  }
}

// An engine that declares nothing is judged by what fits, which a note says.
TEST_P(DoctorPrecisions, OfAnEngineThatDeclaresNothing) {
  Scratch scratch;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::string folder = scratch.next();
    rewrite(
        lab_->record(job_, {.activations = dtype}, program_), folder, DType::kF32,
        [](Tensor&) { return true; },
        [](trace::Manifest& manifest) { manifest.engine.precision = {}; });
    const auto trace = trace::Trace::open(folder);
    ASSERT_TRUE(trace.ok());
    const auto diagnoses = diagnose(*trace);
    EXPECT_FALSE(wrong_) << name(dtype);
    EXPECT_TRUE(diagnoses.empty()) << tell(diagnoses);
  }
}

TEST_P(DoctorPrecisions, NoNameForWhatIsDeclared) {
  for (CoarseStyle coarse : undeclared()) {
    if (leave_out()) continue;
    coarse.style.silent = false;
    const auto diagnoses = diagnose(lab_->record(job_, coarse.style, program_));
    EXPECT_FALSE(wrong_) << coarse.style.name;
    EXPECT_TRUE(diagnoses.empty()) << tell(diagnoses);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DoctorPrecisions,
                         testing::Values(CoarseModel{"llama_f32", "llama", "f32"},
                                         CoarseModel{"gpt2_f32", "gpt2", "f32"},
                                         CoarseModel{"qwen2_q8_0", "qwen2", "q8_0"},
                                         CoarseModel{"llama_q4_k", "llama", "q4_k", 256}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace lockstep::engines
