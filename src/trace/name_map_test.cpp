#include "trace/name_map.h"

#include <gtest/gtest.h>

namespace lockstep::trace {
namespace {

TEST(NameMap, BuiltInMapsKnowPlainNames) {
  const NameMap* map = find_name_map("llama.cpp");
  ASSERT_NE(map, nullptr);
  struct Case {
    const char* node;
    const char* architecture;
    std::optional<std::string> wanted;
  };
  const Case cases[] = {
      {"embd", "llama", "embedding"},
      {"attn_norm-0", "llama", "blk.0.attn_norm"},
      {"l_out-127", "granite", "blk.127.output"},
      {"result_output", "", "logits"},
      {"ffn_up-3", "llama", "blk.3.ffn_up"},
      {"ffn_up-3", "phi3", std::nullopt},  // the fused gate and up
      {"Qcur-3", "llama", std::nullopt},   // before or after the rotation?
      {"kq-3", "llama", std::nullopt},     // without scale and mask
      {"norm-3", "llama", std::nullopt},   // unknown
      {"attn_norm-", "llama", std::nullopt},
      {"attn_norm-3x", "llama", std::nullopt},
      {"attn_norm-{N}", "llama", std::nullopt},
      {"", "llama", std::nullopt},
  };
  for (const Case& c : cases)
    EXPECT_EQ(map->checkpoint(c.node, c.architecture), c.wanted) << c.node << " " << c.architecture;

  map = find_name_map("transformers");
  ASSERT_NE(map, nullptr);
  EXPECT_EQ(map->checkpoint("model.layers.12.mlp.up_proj", "qwen2"), "blk.12.ffn_up");
  EXPECT_EQ(map->checkpoint("model.layers.12.self_attn.q_proj", "qwen2"), "blk.12.q");
  EXPECT_EQ(map->checkpoint("model.layers.12.self_attn.q_proj", "qwen3"), std::nullopt);
  EXPECT_EQ(map->checkpoint("model.layers.12.self_attn.q_proj", "llama"), std::nullopt);
  EXPECT_EQ(map->checkpoint("model.layers.12.self_attn.v_proj", "mistral"), "blk.12.v");
  EXPECT_EQ(find_name_map("nobody"), nullptr);
}

TEST(NameMap, ChecksEveryField) {
  const std::string head = R"({"format": "lockstep-names", "version": 1, "engine": "x", )";
  const auto good =
      NameMap::parse(head + R"("rules": [{"checkpoint": "logits", "nodes": ["out"]}]})", "m");
  ASSERT_TRUE(good.ok()) << good.error().message;
  EXPECT_EQ(good->engine(), "x");
  EXPECT_EQ(good->checkpoint("out", "any"), "logits");
  const std::pair<std::string, const char*> bad[] = {
      {"{", "m: "},
      {"[]", "m: document: found an array of 0, expected an object"},
      {R"({"format": "x"})", "m: format: found \"x\", expected 'lockstep-names'"},
      {R"({"format": "lockstep-names", "version": 2})",
       "m: version: found 2, expected a whole number from 1 to 1"},
      {head + R"("rules": 1})", "m: rules: found 1, expected an array"},
      {head + R"("known_as": {"a": 1}, "rules": []})", "m: known_as.a: found 1, expected a string"},
      {head + R"("rules": [{"nodes": ["a"]}]})",
       "m: rules[0].checkpoint: found nothing, expected a string"},
      {head + R"("rules": [{"checkpoint": "q"}]})", "m: rules[0]: "},
      {head + R"("rules": [{"checkpoint": "q", "nodes": "a"}]})",
       "m: rules[0].nodes: found \"a\", expected an array"},
      {head + R"("rules": [{"checkpoint": "q", "nodes": []}]})",
       "m: rules[0].nodes: found an array of 0, expected a list of names"},
      {head + R"("rules": [{"checkpoint": "q", "nodes": ["a"], "opp": ["ROPE"]}]})",
       "m: rules[0].opp: "},
  };
  for (const auto& [text, message] : bad) {
    const auto map = NameMap::parse(text, "m");
    ASSERT_FALSE(map.ok()) << text;
    EXPECT_TRUE(map.error().message.starts_with(message)) << map.error().message;
  }
}

TEST(NameMap, AnArchitecturesOwnRulesTakeThePlaceOfGeneralOnes) {
  const auto map = NameMap::parse(R"({"format": "lockstep-names", "version": 1, "engine": "x",
    "rules": [{"checkpoint": "blk.{N}.q", "nodes": ["q{N}"]},
              {"checkpoint": "blk.{N}.q", "nodes": ["query.{N}"], "architectures": ["odd"]}]})",
                                  "m");
  ASSERT_TRUE(map.ok()) << map.error().message;
  EXPECT_EQ(map->checkpoint("q4", "even"), "blk.4.q");
  EXPECT_EQ(map->checkpoint("query.4", "even"), std::nullopt);
  EXPECT_EQ(map->checkpoint("q4", "odd"), std::nullopt);
  EXPECT_EQ(map->checkpoint("query.4", "odd"), "blk.4.q");
}

TEST(NameMap, KnowsNamesOfCheckpoints) {
  for (const char* name : {"embedding", "blk.0.q", "blk.99.attn_scores", "blk.3.output", "logits"})
    EXPECT_TRUE(is_checkpoint_name(name)) << name;
  for (const char* name :
       {"", "blk.", "blk.q", "blk..q", "blk.1.", "blk.1.qq", "blk.x.q", "norm-1"})
    EXPECT_FALSE(is_checkpoint_name(name)) << name;
}

}  // namespace
}  // namespace lockstep::trace
