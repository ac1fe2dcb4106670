// Engines that round factors of products and say so: to tf32, to 8-bit floating point, to whole
// numbers with a scale. Honest ones pass, one that keeps silent is condemned, and a bug is found.
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lab.h"

namespace lockstep::engines {
namespace {

using parity::Order;

std::vector<Style> rounding_styles() {
  std::vector<Style> out;
  for (const char* factors : {"tf32", "tf32cut"})
    out.push_back({.name = factors, .order = Order::kLanes8, .factors = factors});
  out.push_back({.name = "tf32 activations", .products = "tf32"});
  out.push_back({.name = "tf32 weights", .weights = "tf32"});
  out.push_back({.name = "f16 weights", .weights = "f16"});
  out.push_back({.name = "bf16 weights", .order = Order::kPairwise, .weights = "bf16"});
  for (const Order order : {Order::kSequential, Order::kLanes16})
    out.push_back(
        {.name = fmt::format("f16 sums {}", order == Order::kSequential ? "in order" : "in lanes"),
         .order = order,
         .kv = DType::kF16,
         .half_sums = true});
  for (const std::string type : {"e4m3", "e5m2", "int8"})
    for (const std::string scale : {"", ":tensor", ":row", ":block8", ":block128"}) {
      if (type == "int8" && scale.empty()) continue;
      const std::string name = type + scale;
      const Order order = scale == ":row" ? Order::kBlocks32 : Order::kSequential;
      out.push_back({.name = "activations " + name, .order = order, .products = name});
      out.push_back({.name = "kv " + name, .order = order, .cache = name});
      out.push_back({.name = "weights " + name, .order = order, .weights = name});
      out.push_back({.name = "both " + name, .order = order, .products = name, .weights = name});
      if (type != "int8")
        out.push_back({.name = "all " + name,
                       .order = order,
                       .products = name,
                       .cache = name,
                       .cache_as_is = true,
                       .weights = name});
    }
  return out;
}

// Each time another part; LOCKSTEP_THOROUGH=1 tries all.
bool skips(uint64_t number) {
  return std::getenv("LOCKSTEP_THOROUGH") == nullptr && number % 5 != 0;
}

class Precisions : public testing::TestWithParam<std::string> {
 protected:
  Precisions() {
    forge::Spec spec{.arch = GetParam() == "gpt2" ? "gpt2" : "llama",
                     .layers = 2,
                     .width = 64,
                     .heads = 4,
                     .kv_heads = GetParam() == "gpt2" ? 4 : 2,
                     .head_size = 16,
                     .feed_forward = 96,
                     .vocabulary = 67,
                     .biases = true,
                     .type = GetParam() == "halves" ? "f16" : "f32",
                     .seed = std::random_device{}()};
    RecordProperty("seed", std::to_string(spec.seed));
    number_ = seed_ = spec.seed;
    lab_ = std::make_unique<Lab>(Lab::forged(spec));
    job_.prompt = 7;
    job_.tokens = random_tokens(seed_, 11, 67);
  }

  uint64_t seed_ = 0;
  uint64_t number_ = 0;
  std::unique_ptr<Lab> lab_;
  Job job_;
};

std::string describe(const parity::Comparison& c) {
  if (!c.first_defect) return c.verdict;
  const auto& d = *c.first_defect;
  return fmt::format("{}: {} at {}, ratio {:.3g}, error {:.3g}, expected {:.3g}", c.verdict,
                     d.checkpoint, d.position, d.own.ratio(), d.own.error, d.own.expected);
}

TEST_P(Precisions, HonestEnginesPassAndSilentOnesDoNot) {
  std::map<std::string, double> worst;
  for (const std::string set : {"all", "ops", "layers"}) {
    job_.checkpoints = set;
    const op::Program program = lab_->program(job_);
    const auto reference = lab_->record(job_, {.name = "f64", .doubles = true}, program);
    for (Style style : rounding_styles()) {
      if (skips(++number_)) continue;
      SCOPED_TRACE(fmt::format("{}, {}, seed {}", style.name, set, seed_));
      const auto found = lab_->compare(reference, lab_->record(job_, style, program));
      EXPECT_TRUE(found.parity) << describe(found);
      EXPECT_EQ(found.judged, 1);
      for (const auto& c : found.checkpoints)
        worst[style.name] = std::max(worst[style.name], c.suspect.worst->ratio());
      if (set == "layers") continue;
      style.silent = true;
      const auto silent = lab_->compare(reference, lab_->record(job_, style, program));
      // Halves have no more digits than tf32.
      const bool nothing = GetParam() == "halves" && style.name == "tf32 weights";
      EXPECT_EQ(silent.parity, nothing) << describe(silent);
    }
  }
  if (std::getenv("LOCKSTEP_TABLE") == nullptr) return;
  for (const auto& [name, ratio] : worst)
    fmt::print("| {} | {} | {:.3f} |\n", GetParam(), name, ratio);
}

// Who adds up halves in half precision has to say so, even where all else is said.
TEST_P(Precisions, SumsInHalvesMustBeSaid) {
  job_.checkpoints = "all";
  const op::Program program = lab_->program(job_);
  const auto reference = lab_->record(job_, {.name = "f64", .doubles = true}, program);
  const auto compare = [&](bool says) {
    const Style style{.name = "f16 sums", .kv = DType::kF16, .half_sums = true, .says_sums = says};
    return lab_->compare(reference, lab_->record(job_, style, program));
  };
  EXPECT_TRUE(compare(true).parity) << describe(compare(true));
  // Of a mix of few values the factors' rounding, which an f16 cache is granted, explains as much.
  if (GetParam() != "halves") return;
  const auto silent = compare(false);
  ASSERT_TRUE(silent.first_defect) << describe(silent);
  EXPECT_EQ(silent.first_defect->checkpoint, "blk.0.q");
}

TEST_P(Precisions, BugsAreStillFound) {
  job_.checkpoints = "all";
  const op::Program program = lab_->program(job_);
  const auto reference = lab_->record(job_, {.name = "f64", .doubles = true}, program);
  const auto previous = [](int64_t position) { return std::max<int64_t>(0, position - 1); };
  struct Planted {
    const char* value;
    doctor::Alteration alteration;
    const char* expected;
  };
  const std::vector<Planted> planted = {
      {"blk.1.q", stale_at(5), "blk.1.q"},
      {"blk.0.ffn_out", doctor::reads_rows(previous), "blk.0.ffn_out"},
      // A wrong mask shows in the scores.
      {"blk.1.attn_mix", doctor::not_itself(), "blk.1.attn_scores"},
      {"blk.0.ffn_norm", stale_at(4), "blk.0.ffn_norm"},
  };
  for (const Style& style : rounding_styles())
    for (const auto& [value, alteration, expected] : planted) {
      if (skips(++number_)) continue;
      const auto suspect = lab_->record(job_, style, altered(program, value, alteration));
      SCOPED_TRACE(fmt::format("{}, {}, seed {}", style.name, expected, seed_));
      const auto found = lab_->compare(reference, suspect);
      ASSERT_TRUE(found.first_defect) << describe(found);
      EXPECT_EQ(found.first_defect->checkpoint, expected) << describe(found);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Precisions, testing::Values("llama", "gpt2", "halves"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace lockstep::engines
