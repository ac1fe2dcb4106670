// Two model files: what their difference comes from.
#include "parity/explain.h"

#include <cmath>
#include <numeric>

#include "base/random.h"
#include "exec/f64/products.h"
#include "parity/part.h"
#include "parity/test_judging.h"

namespace lockstep::parity {
namespace {

forge::Spec spec_of(const char* arch, uint64_t seed) {
  forge::Spec spec;
  spec.arch = arch;
  spec.type = "f32";
  spec.seed = seed;
  spec.vocabulary = 257;
  if (std::string_view(arch).ends_with("moe")) {
    spec.experts = 7;
    spec.experts_used = 3;
  }
  return spec;
}

Result<Comparison> compare_files(const TracedModel& reference, const Recording& a,
                                 const TracedModel& suspect, const Recording& b,
                                 CompareOptions options = {}) {
  options.suspect_model = &suspect.model();
  return compare(reference.write(a), suspect.write(b), &reference.model(), options);
}

std::string refusal(const TracedModel& reference, const TracedModel& suspect) {
  const auto out = compare_files(reference, reference.record(kTokens, kPrompt), suspect,
                                 suspect.record(kTokens, kPrompt));
  return out.ok() ? "not refused: " + out->verdict : out.error().message;
}

const ExplainedValue& value_of(const std::vector<ExplainedValue>& values, std::string_view name) {
  for (const ExplainedValue& value : values)
    if (value.checkpoint == name) return value;
  throw std::runtime_error("nothing is said of " + std::string(name));
}

void expect_whole(const std::vector<ExplainedValue>& values) {
  for (const ExplainedValue& value : values) {
    double shares = 0;
    for (size_t p = 0; p < kOrigins; ++p) shares += value.parts.share(static_cast<Origin>(p));
    if (value.parts.difference > 0) {
      EXPECT_NEAR(shares, 1, 1e-6) << value.checkpoint;
    }
  }
}

// Both sides compute exactly: all that differs comes from the weights, at once or before.
TEST(Explain, ExactSidesDifferByTheirWeights) {
  for (const char* arch : {"llama", "qwen2", "gemma2", "qwen3moe"}) {
    const TracedModel reference(spec_of(arch, 3));
    const TracedModel suspect(reference.model(), "q8_0");
    const auto c = compare_files(reference, reference.record(kTokens, kPrompt), suspect,
                                 suspect.record(kTokens, kPrompt));
    ASSERT_TRUE(c.ok()) << arch << ": " << c.error().message;
    EXPECT_FALSE(c->first_defect) << arch << " " << c->first_defect->checkpoint;
    EXPECT_EQ(c->verdict, "different weights") << arch;
    EXPECT_FALSE(c->parity);
    EXPECT_TRUE(c->reference.judged && c->suspect.judged);
    ASSERT_TRUE(c->explanation);
    const Explanation& e = *c->explanation;
    EXPECT_TRUE(e.weights_differ);
    EXPECT_TRUE(e.settings.empty()) << arch << ": " << e.settings.front();
    expect_whole(e.values);
    expect_whole(e.layers);
    for (const auto* values : {&e.values, &e.layers})
      for (const ExplainedValue& value : *values) {
        EXPECT_LT(value.parts.relative(Origin::kRounding), 1e-12) << arch << value.checkpoint;
        EXPECT_LT(value.parts.relative(Origin::kReferenceRounding), 1e-12) << value.checkpoint;
      }
    // What comes first has inherited nothing; what has no weights has nothing of its own.
    EXPECT_EQ(e.values.front().checkpoint, "embedding");
    EXPECT_EQ(e.values.front().parts.relative(Origin::kInherited), 0);
    EXPECT_EQ(value_of(e.values, "blk.1.attn_mix").parts.relative(Origin::kWeights), 0);
    EXPECT_EQ(value_of(e.values, "blk.1.attn_mix").work, Work::kAttention);
    const ExplainedValue& q = value_of(e.values, "blk.1.q");
    EXPECT_GT(q.parts.relative(Origin::kInherited), 0);
    ASSERT_GE(q.tensors.size(), 1u);
    EXPECT_EQ(q.tensors[0].name, "blk.1.attn_q.weight");
    EXPECT_EQ(q.tensors[0].reference_format, "F32");
    EXPECT_EQ(q.tensors[0].suspect_format, "Q8_0");
    ASSERT_TRUE(e.choices) << e.no_choices;
    EXPECT_EQ(e.choices->positions, std::ssize(kTokens));
    EXPECT_GT(e.choices->divergence, 0);
    EXPECT_NEAR(e.choices->divergence, c->choices.mean_kl(), 1e-12);
    EXPECT_NEAR(e.choices->weights_alone, e.choices->divergence, 1e-9 * e.choices->divergence);
    EXPECT_NEAR(e.choices->parts[0], e.choices->divergence, 1e-6 * e.choices->divergence);
    EXPECT_EQ(e.choices->same, e.choices->same_by_weights);
  }
}

// By hand: the suspect's matrix times the reference's inputs.
TEST(Explain, WeightsWorkOnTheReferencesInputs) {
  const TracedModel reference(spec_of("llama", 8));
  const TracedModel suspect(reference.model(), "q4_0");
  const Recording a = reference.record(kTokens, kPrompt);
  const Recording b = suspect.record(kTokens, kPrompt);
  const auto c = compare_files(reference, a, suspect, b);
  ASSERT_TRUE(c.ok()) << c.error().message;
  const auto program = [](const TracedModel& of) { return of.model().program(9).value(); };
  const auto weight_of = [](const op::Program& of) {
    for (const op::Op& op : of.ops)
      if (const auto* linear = std::get_if<op::Linear>(&op.what))
        if (linear->weight.name == "blk.1.ffn_up.weight") return linear->weight;
    throw std::runtime_error("no such weight");
  };
  const auto matrix = [](const Recording& of, const std::string& name) {
    const auto& value = of.values.at(name);
    exec::reference::Matrix out(value.shape[0], value.shape[1]);
    out.values.assign(value.numbers.begin(), value.numbers.end());
    return out;
  };
  const op::Program p = program(reference);
  const op::Program q = program(suspect);
  const auto x = matrix(a, "blk.1.ffn_norm");
  const auto right = exec::f64::multiply(weight_of(p), x, 1);
  const auto other = exec::f64::multiply(weight_of(q), x, 1);
  const auto inherited = exec::f64::multiply(weight_of(q), matrix(b, "blk.1.ffn_norm"), 1);
  double size = 0, weights = 0, before = 0;
  for (size_t i = 0; i < right.values.size(); ++i) {
    size += right.values[i] * right.values[i];
    weights += std::pow(other.values[i] - right.values[i], 2);
    before += std::pow(inherited.values[i] - other.values[i], 2);
  }
  const Parts& parts = value_of(c->explanation->values, "blk.1.ffn_up").parts;
  EXPECT_NEAR(parts.relative(Origin::kWeights), std::sqrt(weights / size), 1e-9);
  EXPECT_NEAR(parts.relative(Origin::kInherited), std::sqrt(before / size), 1e-9);
  EXPECT_GT(parts.relative(Origin::kWeights), 0.01);
}

// Rounding of the suspect and of the reference are told apart, from each other and from weights.
TEST(Explain, RoundingIsTheSidesOwn) {
  const TracedModel reference(spec_of("llama", 21));
  const TracedModel suspect(reference.model(), "q8_0");
  Recording a = reference.record(kTokens, kPrompt);
  Recording b = suspect.record(kTokens, kPrompt);
  Random random(5);
  for (const auto& [recording, size] : {std::pair(&a, 1e-4), std::pair(&b, 1e-2)}) {
    recording->manifest.engine.precision = {"f16", "f16", "f16"};
    for (double& each : recording->values.at("logits").numbers) each += size * random.gaussian();
  }
  const auto c = compare_files(reference, a, suspect, b);
  ASSERT_TRUE(c.ok()) << c.error().message;
  const Explanation& e = *c->explanation;
  const ExplainedValue& logits = value_of(e.values, "logits");
  EXPECT_GT(logits.parts.relative(Origin::kRounding),
            30 * logits.parts.relative(Origin::kReferenceRounding));
  EXPECT_GT(logits.parts.relative(Origin::kReferenceRounding), 0);
  EXPECT_LT(value_of(e.values, "blk.1.output").parts.relative(Origin::kRounding), 1e-12);
  ASSERT_TRUE(e.choices) << e.no_choices;
  EXPECT_GT(e.choices->rounding_alone, 0);
  EXPECT_GT(e.choices->reference_rounding_alone, 0);
  EXPECT_GT(e.choices->rounding_alone, 100 * e.choices->reference_rounding_alone);
  EXPECT_NEAR(std::accumulate(e.choices->parts.begin(), e.choices->parts.end(), 0.0),
              e.choices->divergence, 1e-6 * e.choices->divergence);
}

// A defect is still one, whatever the weights.
TEST(Explain, EachSideIsJudgedByItsOwnFile) {
  const TracedModel reference(spec_of("qwen2", 33));
  const TracedModel suspect(reference.model(), "q4_0");
  Recording b = suspect.record(kTokens, kPrompt);
  b.at("blk.1.ffn_act", 4, 11) += 0.5;
  const auto c = compare_files(reference, reference.record(kTokens, kPrompt), suspect, b);
  ASSERT_TRUE(c.ok()) << c.error().message;
  ASSERT_TRUE(c->first_defect);
  EXPECT_EQ(c->first_defect->checkpoint, "blk.1.ffn_act");
  EXPECT_EQ(c->first_defect->side, Side::kSuspect);
  EXPECT_EQ(c->defects, 2);  // ffn_out was computed from another ffn_act
  EXPECT_EQ(c->verdict, "defect");
  ASSERT_TRUE(c->explanation);
  EXPECT_GT(value_of(c->explanation->values, "blk.1.ffn_act").parts.relative(Origin::kRounding), 0);
}

// The same numbers in another file are no difference.
TEST(Explain, TheSameWeightsInTwoFilesAreInParity) {
  forge::Spec spec = spec_of("llama", 4);
  const TracedModel reference(spec);
  spec.name = "another name";
  const TracedModel suspect(spec);
  const auto c = compare_files(reference, reference.record(kTokens, kPrompt), suspect,
                               suspect.record(kTokens, kPrompt));
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_TRUE(c->parity) << c->verdict;
  ASSERT_TRUE(c->explanation);
  EXPECT_FALSE(c->explanation->weights_differ);
  ASSERT_TRUE(c->explanation->choices);
  EXPECT_EQ(c->explanation->choices->divergence, 0);
}

TEST(Explain, OtherSettingsAreNamed) {
  forge::Spec spec = spec_of("llama", 4);
  const TracedModel reference(spec);
  spec.rope_base = 500000;
  spec.epsilon = 1e-6;
  const TracedModel suspect(spec);
  const auto c = compare_files(reference, reference.record(kTokens, kPrompt), suspect,
                               suspect.record(kTokens, kPrompt));
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->verdict, "different settings");
  const std::vector<std::string>& settings = c->explanation->settings;
  ASSERT_EQ(settings.size(), 2u);
  EXPECT_TRUE(settings[0].starts_with("an epsilon of 9.99999975e-06 in the reference and "))
      << settings[0];
  EXPECT_EQ(settings[1],
            "a rope base of 10000 in the reference and 500000 in the suspect (blk.0.q_rope and 3 "
            "more places)");
  EXPECT_NE(c->other_settings.find(settings[1]), std::string::npos) << c->other_settings;
}

TEST(Explain, OnlyModelsOfOneShapeAreComparedAndEachWithItsTrace) {
  const TracedModel llama(spec_of("llama", 1));
  const TracedModel qwen(spec_of("qwen2", 1));
  EXPECT_EQ(refusal(llama, qwen), "the traces are of different architectures: llama and qwen2");
  Recording silent = qwen.record(kTokens, kPrompt);
  silent.manifest.model.architecture.clear();
  const auto untold = compare_files(llama, llama.record(kTokens, kPrompt), qwen, silent);
  ASSERT_FALSE(untold.ok());
  EXPECT_NE(untold.error().message.find("are of different architectures, which cannot be compared: "
                                        "llama of "),
            std::string::npos)
      << untold.error().message;
  forge::Spec deep = spec_of("llama", 1);
  deep.layers = 3;
  const std::string steps = refusal(llama, TracedModel(deep));
  EXPECT_NE(steps.find("have different steps: where the first has final_norm, the second has "
                       "blk.2.attn_norm"),
            std::string::npos)
      << steps;
  forge::Spec wide = spec_of("llama", 1);
  wide.feed_forward = 224;
  const std::string sizes = refusal(llama, TracedModel(wide));
  EXPECT_NE(sizes.find("blk.0.ffn_gate has 192 numbers by "), std::string::npos) << sizes;
  // The files the other way round.
  const TracedModel quantized(llama.model(), "q8_0");
  CompareOptions options;
  options.suspect_model = &llama.model();
  const auto swapped =
      compare(llama.write(llama.record(kTokens, kPrompt)),
              quantized.write(quantized.record(kTokens, kPrompt)), &llama.model(), options);
  ASSERT_FALSE(swapped.ok());
  EXPECT_NE(swapped.error().message.find("Give the file that it ran (--suspect-model)"),
            std::string::npos)
      << swapped.error().message;
}

// What was not recorded is computed, on both sides from the same values.
TEST(Explain, FewerRecordedValuesAreLongerStretches) {
  const TracedModel reference(spec_of("llama", 13));
  const TracedModel suspect(reference.model(), "q4_0");
  const Recording a = reference.record(kTokens, kPrompt);
  const Recording b = suspect.record(kTokens, kPrompt);
  const auto layers = [](const std::string& name) {
    return name == "embedding" || name.ends_with(".output") || name == "logits";
  };
  const auto all = compare_files(reference, a, suspect, b);
  const auto some = compare_files(reference, a, suspect, only(b, layers));
  ASSERT_TRUE(all.ok() && some.ok());
  EXPECT_TRUE(some->explanation->values.empty());
  for (const ExplainedValue& value : some->explanation->layers) {
    if (value.checkpoint == "logits") continue;  // final_norm lies between
    const ExplainedValue& same = value_of(all->explanation->layers, value.checkpoint);
    for (size_t p = 0; p < kOrigins; ++p)
      EXPECT_NEAR(value.parts.relative(static_cast<Origin>(p)),
                  same.parts.relative(static_cast<Origin>(p)), 1e-12)
          << value.checkpoint;
  }
  const auto last = [](const std::string& name) { return name == "logits"; };
  const auto alone = compare_files(reference, only(a, last), suspect, only(b, last));
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  ASSERT_EQ(alone->explanation->layers.size(), 1u);
  const Parts& parts = alone->explanation->layers[0].parts;
  EXPECT_EQ(parts.relative(Origin::kInherited), 0);
  EXPECT_NEAR(parts.share(Origin::kWeights), 1, 1e-9);
  ASSERT_TRUE(alone->explanation->choices);
  EXPECT_NEAR(alone->explanation->choices->divergence, all->explanation->choices->divergence,
              1e-12);
}

TEST(Explain, WithoutLogitsTheReasonIsGiven) {
  const TracedModel reference(spec_of("llama", 13));
  const TracedModel suspect(reference.model(), "q4_0");
  const auto kept = [](const std::string& name) { return name != "logits"; };
  const auto c = compare_files(reference, only(reference.record(kTokens, kPrompt), kept), suspect,
                               suspect.record(kTokens, kPrompt));
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_FALSE(c->explanation->choices);
  EXPECT_EQ(c->explanation->no_choices, "no position has all logits on both sides");
}

TEST(Explain, PartsGiveTheSame) {
  const TracedModel reference(spec_of("llama", 13));
  const TracedModel suspect(reference.model(), "q4_0");
  const trace::Trace a = reference.write(reference.record(kTokens, kPrompt));
  const trace::Trace b = suspect.write(suspect.record(kTokens, kPrompt));
  CompareOptions options;
  options.suspect_model = &suspect.model();
  const auto whole = compare(a, b, &reference.model(), options);
  std::vector<Findings> parts;
  for (int64_t k = 1; k <= 3; ++k) {
    auto part = compare_part(a, b, &reference.model(), options, {k, 3});
    ASSERT_TRUE(part.ok()) << part.error().message;
    parts.push_back(parse_findings(to_json(*part), "part").value());
  }
  options.parts = &parts;
  const auto merged = compare(a, b, &reference.model(), options);
  ASSERT_TRUE(whole.ok() && merged.ok());
  EXPECT_EQ(merged->verdict, whole->verdict);
  EXPECT_EQ(merged->explanation->choices->divergence, whole->explanation->choices->divergence);
  options.suspect_model = nullptr;
  const auto other = compare(a, b, &reference.model(), options);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("of another model of the suspect: found "),
            std::string::npos)
      << other.error().message;
}

}  // namespace
}  // namespace lockstep::parity
