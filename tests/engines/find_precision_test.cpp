// Engines that compute in a coarser type than they say: the doctor names the type and the place. It
// finds nothing in correct engines, and nothing where the mistake is another one.
#include "doctor/find_precision.h"

#include <cstdlib>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "base/test_effort.h"
#include "lab.h"
#include "quant/decode.h"
#include "rewrite.h"
#include "small_numbers.h"

namespace lockstep::engines {
namespace {

using doctor::PrecisionFinding;
using doctor::PrecisionFindings;
using doctor::WrongRows;
using parity::Order;

struct Model {
  const char* name;
  const char* arch;
  const char* type;
  int64_t width = 64;
  int64_t feed_forward = 96;
};

class FindPrecision : public testing::TestWithParam<Model> {
 protected:
  FindPrecision() {
    const Model& model = GetParam();
    const bool gpt2 = std::string(model.arch) == "gpt2";
    const forge::Spec spec{.arch = model.arch,
                           .layers = 2,
                           .width = model.width,
                           .heads = 4,
                           .kv_heads = gpt2 ? 4 : 2,
                           .head_size = model.width / 4,
                           .feed_forward = model.feed_forward,
                           .vocabulary = 67,
                           .biases = true,
                           .type = model.type,
                           .seed = seed_};
    RecordProperty("seed", std::to_string(spec.seed));
    lab_ = std::make_unique<Lab>(Lab::forged(spec));
    job_.prompt = 7;
    job_.checkpoints = "all";
    job_.tokens = random_tokens(seed_, 11, 67);
    program_ = lab_->program(job_);
  }

  // All rows: those that are right by what is declared are left alone.
  PrecisionFindings find(const trace::Trace& trace, const std::string& only = "") const {
    const auto forwards = parity::forwards_of(lab_->model(), trace);
    LS_CHECK(forwards.ok());
    std::vector<WrongRows> rows;
    for (op::ValueId id = 0; id < std::ssize(program_.values); ++id) {
      const std::string& name = program_.value(id).name;
      if (!trace.has(name) || (!only.empty() && name != only)) continue;
      rows.push_back({id, {}});
      for (int64_t p = 0; p < trace.positions(); ++p) rows.back().positions.push_back(p);
    }
    return find_precision(
        {forwards->front(), trace, job_.tokens, trace.manifest().engine.precision, "all", 1}, rows);
  }

  // Each time another part; LOCKSTEP_THOROUGH=1 tries all.
  bool leave_out() {
    const int64_t one_in = GetParam().width > 64 ? 8 : 2;
    return std::getenv("LOCKSTEP_THOROUGH") == nullptr && choice_.below(one_in) != 0;
  }

  std::string tell(const PrecisionFindings& found) const {
    std::string out =
        fmt::format("{}, seed {}: {} rows, {} left, ratio {:.3g} to {:.3g}\n", GetParam().name,
                    seed_, found.rows, found.left, found.ratio_before, found.ratio_after);
    for (const PrecisionFinding& f : found.all) {
      out += fmt::format(
          "  {} {} {} [{}]: {} values from {}, numbers {} / {}, rows {} / {}, {:.3g} to {:.3g}\n",
          f.cause, f.type, f.of, fmt::join(f.alternatives, " "), f.values.size(),
          program_.value(f.values[0]).name, f.on_grid, f.numbers, f.explained, f.rows,
          f.ratio_before, f.ratio_after);
    }
    return out + describe(found, {}, program_);
  }

  static bool has(const PrecisionFindings& found, const std::string& cause,
                  const std::string& type) {
    return std::ranges::any_of(found.all, [&](const PrecisionFinding& f) {
      return f.cause == cause &&
             (f.type == type || std::ranges::find(f.alternatives, type) != f.alternatives.end());
    });
  }

  uint64_t seed_ = search_seed();
  Random choice_{seed_};
  std::unique_ptr<Lab> lab_;
  Job job_;
  op::Program program_;
  Scratch scratch_;
};

TEST_P(FindPrecision, NothingInCorrectEngines) {
  for (const std::string set : {"all", "ops", "layers"}) {
    job_.checkpoints = set;
    for (const Order order : {Order::kSequential, Order::kLanes8, Order::kPairwise}) {
      const auto found = find(lab_->record(job_, {.order = order}, program_));
      EXPECT_FALSE(found.found()) << tell(found);
    }
    const auto doubles = find(lab_->record(job_, {.name = "f64", .doubles = true}, program_));
    EXPECT_FALSE(doubles.found()) << tell(doubles);
    for (Style style :
         {Style{.name = "bf16", .activations = DType::kBF16},
          Style{.name = "f16", .activations = DType::kF16},
          Style{.name = "f16 cache", .kv = DType::kF16}, Style{.name = "int8", .int8 = true}}) {
      if (leave_out()) continue;
      const auto declared = find(lab_->record(job_, style, program_));
      EXPECT_FALSE(declared.found()) << style.name << ": " << tell(declared);
    }
  }
}

TEST_P(FindPrecision, NothingForOtherMistakes) {
  const char* sets[] = {"all", "ops", "layers"};
  for (const Bug& bug : bugs()) {
    job_.checkpoints = sets[choice_.below(3)];
    Patient patient(program_);
    const auto wrong = bug.make(patient, 1, 5);
    if (!wrong || leave_out()) continue;
    using enum Quirk::Kind;
    const Quirk::Kind kind = patient.quirks.empty() ? kNone : patient.quirks[0].kind;
    if (kind == kHalfInput || kind == kBfloatInput || kind == kBfloatOutput || kind == kHalfCache)
      continue;
    const auto found = find(lab_->record(job_, {}, patient));
    EXPECT_FALSE(found.found()) << bug.name << ": " << tell(found);
  }
}

struct Expected {
  Style style;
  std::string cause;
  std::string type;
};

std::vector<Expected> coarse_styles(const std::string& file_type) {
  std::vector<Expected> out;
  const auto add = [&](Style style, const std::string& cause, const std::string& type) {
    style.silent = true;
    style.name = cause + " " + type;
    out.push_back({style, cause, type});
  };
  add({.activations = DType::kBF16}, "precision.result", "bf16");
  add({.order = Order::kLanes8, .activations = DType::kF16}, "precision.result", "f16");
  add({.kv = DType::kF16}, "precision.cache", "f16");
  add({.order = Order::kLanes4, .kv = DType::kBF16}, "precision.cache", "bf16");
  for (const std::string name :
       {"e4m3", "e5m2:row", "int8:row", "int8:block16", "int8:tensor", "e4m3:block16"})
    add({.cache = name}, "precision.cache", name == "int8:tensor" ? "int8:row" : name);
  for (const std::string name : {"f16", "bf16", "tf32", "e4m3", "e5m2:tensor", "int8:row",
                                 "int8:tensor", "int8:block32", "e4m3:block32"}) {
    const bool whole = name == "int8:block32" && file_type.starts_with("q");
    add({.products = name}, "precision.operands", whole ? "q8_0" : name);
    if (file_type != "f32") continue;
    if (!name.ends_with("tensor")) add({.weights = name}, "precision.operands", name);
    if (!name.ends_with("tensor"))
      add({.order = Order::kPairwise, .products = name, .weights = name}, "precision.operands",
          name);
  }
  add({.factors = "tf32"}, "precision.operands", "tf32");
  add({.factors = "tf32cut"}, "precision.operands", "tf32");
  return out;
}

TEST_P(FindPrecision, EveryCoarseType) {
  for (const Expected& expected : coarse_styles(GetParam().type)) {
    if (leave_out()) continue;
    const auto found = find(lab_->record(job_, expected.style, program_));
    ASSERT_TRUE(found.found()) << expected.style.name << ", seed " << seed_;
    EXPECT_TRUE(has(found, expected.cause, expected.type))
        << expected.style.name << ": " << tell(found);
    // Nothing but that.
    for (const PrecisionFinding& f : found.all) {
      // Keys and values are factors of products too.
      if (expected.style.factors.empty()) {
        EXPECT_EQ(f.cause, expected.cause) << expected.style.name << ": " << tell(found);
      }
      EXPECT_TRUE(f.proved) << tell(found);
      EXPECT_GE(5 * f.explained, 4 * f.rows) << expected.style.name << ": " << tell(found);
      EXPECT_GT(f.ratio_before, 1);
    }
    EXPECT_EQ(found.left, 0) << expected.style.name << ": " << tell(found);
  }
}

TEST_P(FindPrecision, OneOpThatRoundsWhatItReads) {
  using enum Quirk::Kind;
  for (const std::string name :
       {"blk.1.attn_norm", "blk.0.attn_out", "blk.1.ffn_act", "blk.0.ffn_out", "blk.1.output"}) {
    op::ValueId id = 0;
    while (program_.value(id).name != name) ++id;
    for (const auto& [kind, cause, type] :
         {std::tuple{kHalfInput, "precision.operands", "f16"},
          std::tuple{kBfloatInput, "precision.operands", "bf16"},
          std::tuple{kBfloatOutput, "precision.result", "bf16"}}) {
      if (leave_out()) continue;
      const Quirk quirk{kind, id, -1};
      const auto found = find(lab_->record(job_, {}, program_, {&quirk, 1}));
      EXPECT_TRUE(has(found, cause, type)) << name << ": " << tell(found);
      EXPECT_EQ(found.all.size(), 1u) << name << ": " << tell(found);
    }
  }
}

// Results that are 8-bit numbers with a scale, as those of a layer that quantizes its output.
TEST_P(FindPrecision, ResultsWithAScale) {
  const trace::Trace honest = lab_->record(job_, {}, program_);
  for (const std::string name : {"int8:row", "int8:block16", "e4m3:row", "e5m2:block16"})
    for (const std::string checkpoint : {"blk.0.v", "blk.1.ffn_out", "blk.1.ffn_norm"}) {
      const std::string folder = scratch_.next();
      rewrite(honest, folder, DType::kF32, [&](Tensor& tensor) {
        if (tensor.checkpoint == checkpoint)
          round_numbers(std::span(tensor.values), static_cast<size_t>(tensor.shape[1]), name);
        return true;
      });
      const auto trace = trace::Trace::open(folder);
      ASSERT_TRUE(trace.ok());
      const auto found = find(*trace, checkpoint);
      EXPECT_TRUE(has(found, "precision.result", name)) << name << ": " << tell(found);
      EXPECT_EQ(found.all.size(), 1u) << tell(found);
    }
}

TEST_P(FindPrecision, ATableOfTheFunction) {
  const trace::Trace honest = lab_->record(job_, {}, program_);
  const bool gpt2 = std::string(GetParam().arch) == "gpt2";
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const std::string folder = scratch_.next();
    int64_t first = 0;  // position of the step
    rewrite(honest, folder, DType::kF32, [&](Tensor& tensor) {
      if (tensor.checkpoint != "blk.1.ffn_act") return true;
      const auto number = [&](const char* name, int64_t p, int64_t i) {
        return honest.row(name, p)->at(0, i);
      };
      const auto width = static_cast<size_t>(GetParam().feed_forward);
      for (size_t n = 0; n < tensor.values.size(); ++n) {
        const int64_t p = first + static_cast<int64_t>(n / width);
        const auto i = static_cast<int64_t>(n % width);
        const auto x = static_cast<float>(
            parity::round_to(number(gpt2 ? "blk.1.ffn_up" : "blk.1.ffn_gate", p, i), dtype));
        const float y = gpt2 ? 0.5f * x * (1 + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)))
                             : x / (1 + std::exp(-x));
        const auto kept = static_cast<float>(parity::round_to(static_cast<double>(y), dtype));
        tensor.values[n] = static_cast<double>(
            gpt2 ? kept : kept * static_cast<float>(number("blk.1.ffn_up", p, i)));
      }
      first += tensor.shape[0];
      return true;
    });
    const auto trace = trace::Trace::open(folder);
    ASSERT_TRUE(trace.ok());
    const auto found = find(*trace, "blk.1.ffn_act");
    EXPECT_TRUE(has(found, "precision.table", std::string(name(dtype)))) << tell(found);
    EXPECT_EQ(found.all.size(), 1u) << tell(found);
  }
}

TEST_P(FindPrecision, ATableOfSoftmax) {
  const trace::Trace honest = lab_->record(job_, {}, program_);
  const std::string folder = scratch_.next();
  int64_t first = 0;  // position of the step
  rewrite(honest, folder, DType::kF32, [&](Tensor& tensor) {
    if (tensor.checkpoint != "blk.1.attn_probs") return true;
    const int64_t heads = tensor.shape[0];
    const int64_t tokens = tensor.shape[1];
    const int64_t keys = tensor.shape[2];
    const auto half = [](float x) { return half_to_float(float_to_half(x)); };
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t t = 0; t < tokens; ++t) {
        const auto scores = *honest.row("blk.1.attn_scores", first + t);
        double* const out = tensor.values.data() + (head * tokens + t) * keys;
        float largest = -std::numeric_limits<float>::infinity();
        for (int64_t k = 0; k < keys; ++k)
          largest = std::max(largest, static_cast<float>(scores.at(head, k)));
        float sum = 0;
        for (int64_t k = 0; k < keys; ++k) {
          const float power =
              half(std::exp(half(static_cast<float>(scores.at(head, k)) - largest)));
          out[k] = static_cast<double>(power);
          sum += power;
        }
        for (int64_t k = 0; k < keys; ++k)
          out[k] = static_cast<double>(static_cast<float>(out[k]) / sum);
      }
    first += tokens;
    return true;
  });
  const auto trace = trace::Trace::open(folder);
  ASSERT_TRUE(trace.ok());
  const auto found = find(*trace, "blk.1.attn_probs");
  if (found.rows == 0) return;  // scores so far apart that a table is as good
  EXPECT_TRUE(has(found, "precision.table", "f16")) << tell(found);
  EXPECT_EQ(found.all.size(), 1u) << tell(found);
}

// One that says nothing is held to f32, and told what to say.
TEST_P(FindPrecision, OfAnEngineThatDeclaresNothing) {
  const trace::Trace silent = lab_->record(job_, {.activations = DType::kBF16}, program_);
  const std::string folder = scratch_.next();
  rewrite(
      silent, folder, DType::kF32, [](Tensor&) { return true; },
      [](trace::Manifest& manifest) { manifest.engine.precision = {}; });
  const auto trace = trace::Trace::open(folder);
  ASSERT_TRUE(trace.ok());
  const auto found = find(*trace);
  EXPECT_TRUE(has(found, "precision.result", "bf16")) << tell(found);
  EXPECT_EQ(found.all.size(), 1u) << tell(found);
  EXPECT_EQ(found.declare.compute, "f32");
  EXPECT_EQ(found.declare.activations, "bf16");
  EXPECT_EQ(found.left, 0) << tell(found);
  const std::string text = describe(found, {}, program_);
  EXPECT_TRUE(text.starts_with("rounds results to bfloat16 (")) << text;
  EXPECT_NE(text.find("and its manifest does not say it; declare it (f32, activations bf16, kv "
                      "bf16) and the comparison judges by that: "),
            std::string::npos)
      << text;
}

// Sums in half precision, one after the other.
TEST_P(FindPrecision, SumsInHalfPrecision) {
  const trace::Trace honest = lab_->record(job_, {}, program_);
  const std::string folder = scratch_.next();
  int64_t first = 0;  // position of the step
  const op::Op* op = nullptr;
  for (const op::Op& each : program_.ops)
    if (program_.value(each.outputs[0]).name == "blk.0.ffn_out") op = &each;
  const op::Weight& weight = std::get<op::Linear>(op->what).weight;
  std::vector<float> bias(static_cast<size_t>(weight.rows));
  if (const auto& b = std::get<op::Linear>(op->what).bias)
    quant::decode(b->format->format(), b->data.data(), b->columns, bias.data());
  rewrite(honest, folder, DType::kF32, [&](Tensor& tensor) {
    if (tensor.checkpoint != "blk.0.ffn_out") return true;
    std::vector<float> row(static_cast<size_t>(weight.columns));
    const auto width = static_cast<size_t>(weight.rows);
    for (size_t n = 0; n < tensor.values.size(); ++n) {
      const auto r = static_cast<int64_t>(n % width);
      quant::decode(weight.format->format(), weight.row(r), weight.columns, row.data());
      const auto x = *honest.row("blk.0.ffn_act", first + static_cast<int64_t>(n / width));
      parity::Half sum;
      for (int64_t i = 0; i < weight.columns; ++i)
        sum = sum + parity::Half(row[static_cast<size_t>(i)]) * parity::Half(x.at(0, i));
      tensor.values[n] = static_cast<double>(sum + parity::Half(bias[static_cast<size_t>(r)]));
    }
    first += tensor.shape[0];
    return true;
  });
  const auto trace = trace::Trace::open(folder);
  ASSERT_TRUE(trace.ok());
  const auto found = find(*trace, "blk.0.ffn_out");
  ASSERT_EQ(found.all.size(), 1u) << tell(found);
  EXPECT_EQ(found.all[0].cause, "precision.sum") << tell(found);
  EXPECT_EQ(found.all[0].type, "f16") << tell(found);
  EXPECT_FALSE(found.all[0].proved);
  EXPECT_EQ(found.left, 0) << tell(found);
}

// With the layers' outputs alone the bits still tell.
TEST_P(FindPrecision, FromLayersAlone) {
  job_.checkpoints = "layers";
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const auto found = find(lab_->record(job_, {.activations = dtype, .silent = true}, program_));
    EXPECT_TRUE(has(found, "precision.result", std::string(name(dtype)))) << tell(found);
    EXPECT_EQ(found.left, 0) << tell(found);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FindPrecision,
                         testing::Values(Model{"llama", "llama", "f32"},
                                         Model{"gpt2", "gpt2", "f32"},
                                         Model{"halves", "llama", "f16"},
                                         Model{"q8_0", "qwen2", "q8_0"},
                                         Model{"q4_k", "qwen2", "q4_k", 256, 256}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace lockstep::engines
