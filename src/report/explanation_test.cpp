// What is said of two model files.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "report/summary.h"
#include "report/test_comparisons.h"

namespace lockstep::report {
namespace {

parity::Parts parts_of(double weights, double rounding, double inherited) {
  parity::Parts out;
  out.reference = 4;
  out.squares = {4 * weights * weights, 4 * inherited * inherited, 4 * rounding * rounding, 0};
  out.products = out.squares;
  for (const double each : out.products) out.difference += each;
  return out;
}

Comparison explained() {
  Comparison c;
  c.verdict = "different weights";
  c.other_models = "a.gguf and b.gguf";
  c.coverage = 1;
  c.checkpoints = {checkpoint("embedding", -1, Verdict::kDrift, 0.1)};
  parity::Explanation e;
  e.weights_differ = true;
  e.values = {{"blk.0.q",
               0,
               3,
               parity::Work::kProduct,
               {{"blk.0.attn_q.weight", "F16", "Q4_K"}},
               parts_of(0.04, 0.003, 0)},
              {"blk.0.attn_mix", 0, 3, parity::Work::kAttention, {}, parts_of(0, 0.004, 0.1)},
              {"blk.1.q",
               1,
               3,
               parity::Work::kProduct,
               {{"blk.1.attn_q.weight", "Q4_K", "Q4_K"}},
               parts_of(0.06, 0, 0.1)}};
  e.layers = {{"blk.0.output", 0, 3, parity::Work::kSeveral, {}, parts_of(0.03, 0.04, 0)}};
  parity::ExplainedChoices choices;
  choices.positions = 3;
  choices.divergence = 0.02;
  choices.parts = {0.015, 0, 0.0049, 0.0001};
  choices.weights_alone = 0.016;
  choices.same = 2;
  choices.same_by_weights = 3;
  e.choices = choices;
  c.explanation = std::move(e);
  return c;
}

TEST(Explanation, IsToldInSentences) {
  Comparison c = explained();
  EXPECT_EQ(headline(c),
            "Not in parity: the sides ran different weights (a.gguf and b.gguf); each is within "
            "rounding by its own file; coverage 100%");
  const std::vector<std::string> told = explanation_sentences(c);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0],
            "The next token: a KL divergence of 0.02 nats on average over 3 positions. The "
            "suspect's weights make 0.015 (75%) of it, the rounding of its activations, cache and "
            "arithmetic 4.9e-03 (24.5%), the reference's rounding 1.0e-04 (0.5%). In exact "
            "arithmetic the two files are 0.016 nats apart and have the same largest logit at 3 of "
            "3 positions; as recorded at 2.");
  EXPECT_EQ(told[1], "Most changed by its weights: blk.1.attn_q.weight (Q4_K), by 6% of its size.");
  EXPECT_EQ(told[2],
            "Of the suspect's own rounding, 36% lies in products with weights (activations and "
            "sums), 64% in attention (the cache), 0% in the other operations.");
  c.explanation->choices.reset();
  c.explanation->no_choices = "no position has all logits on both sides";
  c.explanation->values.clear();
  const std::vector<std::string> less = explanation_sentences(c);
  ASSERT_EQ(less.size(), 3u);
  EXPECT_EQ(
      less[0],
      "At blk.0.output the sides differ by 5% of its size, of which 36% come from the weights "
      "of this step, 64% from the suspect's rounding in it, 0% were inherited.");
  EXPECT_EQ(less[1],
            "What that does to the next token is not known: no position has all logits on both "
            "sides.");
  EXPECT_EQ(less[2], "Which tensors it comes from is not known: record 'ops' on both sides.");
  c.explanation.reset();
  EXPECT_TRUE(explanation_sentences(c).empty());
}

TEST(Explanation, IsInEveryReport) {
  const Comparison c = explained();
  Subject s = subject();
  s.suspect_model = "b.gguf";
  const std::string first = explanation_sentences(c)[0].substr(0, 40);
  for (const std::string& text :
       {terminal_report(c, s, 1000, Paint(false)), markdown_report(c, s), html_report(c, s)})
    EXPECT_NE(text.find(first), std::string::npos) << text.substr(0, 400);
  const std::string shown = terminal_report(c, s, 100, Paint(false));
  EXPECT_NE(shown.find("By tensor, the most changed"), std::string::npos);
  EXPECT_LT(shown.find("blk.1.attn_q.weight", shown.find("By tensor")),
            shown.find("blk.0.attn_q.weight", shown.find("By tensor")));
  EXPECT_NE(shown.find("model.gguf for the reference, b.gguf for the suspect"), std::string::npos);
  const auto json = nlohmann::json::parse(json_report(c, s));
  EXPECT_EQ(json["suspect_model"], "b.gguf");
  const auto& e = json["explanation"];
  EXPECT_EQ(e["next_token"]["kl"], 0.02);
  EXPECT_EQ(e["next_token"]["weights"], 0.015);
  EXPECT_EQ(e["next_token"]["alone"]["weights"], 0.016);
  EXPECT_EQ(e["values"][0]["tensors"][0]["suspect_format"], "Q4_K");
  EXPECT_DOUBLE_EQ(e["values"][0]["weights"], 0.04);
  EXPECT_DOUBLE_EQ(e["layers"][0]["shares"]["rounding"], 0.64);
  EXPECT_EQ(e["layers"][0]["work"], "several");
  EXPECT_TRUE(e["no_next_token"].is_null());
  EXPECT_TRUE(nlohmann::json::parse(json_report(defective(), subject()))["explanation"].is_null());
}

}  // namespace
}  // namespace lockstep::report
