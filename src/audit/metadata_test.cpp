#include "audit/audit.h"
#include "audit/test_support.h"

namespace lockstep::audit::test {
namespace {

using gguf::Entry;
using gguf::Value;

// A model of metadata alone.
std::vector<Entry> llama_entries() {
  return {{"general.architecture", {std::string("llama")}},
          {"general.name", {std::string("x")}},
          {"llama.block_count", {uint32_t{2}}},
          {"llama.context_length", {uint32_t{256}}},
          {"llama.embedding_length", {uint32_t{64}}},
          {"llama.feed_forward_length", {uint32_t{128}}},
          {"llama.attention.head_count", {uint32_t{4}}},
          {"llama.attention.layer_norm_rms_epsilon", {1e-5f}},
          {"llama.rope.freq_base", {500000.0f}}};
}

void set(std::vector<Entry>& entries, const std::string& key, Value value) {
  for (Entry& entry : entries)
    if (entry.key == key) {
      entry.value = std::move(value);
      return;
    }
  entries.push_back({key, std::move(value)});
}

void drop(std::vector<Entry>& entries, const std::string& key) {
  std::erase_if(entries, [&](const Entry& entry) { return entry.key == key; });
}

std::vector<KeyAudit> audited(const std::vector<Entry>& a, const std::vector<Entry>& b) {
  Files files;
  return audit_metadata(files.open({a, {}}), files.open({b, {}}));
}

const KeyAudit& row(const std::vector<KeyAudit>& rows, const std::string& key) {
  const auto found = std::ranges::find(rows, key, &KeyAudit::key);
  LS_CHECK(found != rows.end(), "{}", key);
  return *found;
}

std::vector<std::string> unequal(const std::vector<KeyAudit>& rows) {
  std::vector<std::string> out;
  for (const KeyAudit& key : rows)
    if (!key.fine()) out.push_back(fmt::format("{} {}", key.key, name(key.verdict)));
  return out;
}

using Texts = std::vector<std::string>;

TEST(AuditMetadata, TheSameIsEqualOrAssumed) {
  const auto rows = audited(llama_entries(), llama_entries());
  EXPECT_EQ(unequal(rows), Texts{});
  EXPECT_EQ(row(rows, "llama.rope.freq_base").verdict, KeyVerdict::kEqual);
  EXPECT_EQ(row(rows, "llama.rope.freq_base").a, 500000);
  EXPECT_EQ(row(rows, "llama.attention.layer_norm_rms_epsilon").a, 1e-5);
  const KeyAudit& dims = row(rows, "llama.rope.dimension_count");
  EXPECT_EQ(dims.verdict, KeyVerdict::kAssumed);
  EXPECT_TRUE(dims.a.is_null() && dims.b.is_null());
  EXPECT_EQ(dims.assumed_a, 16);
  EXPECT_EQ(row(rows, "llama.rope.scaling.type").assumed_b, "none");
}

TEST(AuditMetadata, ADroppedRopeBaseIsMissing) {
  auto b = llama_entries();
  drop(b, "llama.rope.freq_base");
  const auto rows = audited(llama_entries(), b);
  EXPECT_EQ(unequal(rows), Texts{"llama.rope.freq_base missing"});
  EXPECT_EQ(row(rows, "llama.rope.freq_base").assumed_b, 10000);
  // What is assumed is what the other file says.
  auto a = llama_entries();
  set(a, "llama.rope.freq_base", {10000.0});
  EXPECT_EQ(unequal(audited(a, b)), Texts{});
  EXPECT_EQ(row(audited(a, b), "llama.rope.freq_base").verdict, KeyVerdict::kAssumed);
}

TEST(AuditMetadata, EveryNumberOfTheForwardPassCounts) {
  const std::pair<const char*, Value> changes[] = {
      {"block_count", {uint32_t{3}}},
      {"context_length", {uint32_t{512}}},
      {"embedding_length", {uint32_t{128}}},
      {"feed_forward_length", {uint32_t{129}}},
      {"attention.head_count", {uint32_t{2}}},
      {"attention.head_count_kv", {uint32_t{2}}},
      {"attention.key_length", {uint32_t{32}}},
      {"attention.value_length", {uint32_t{32}}},
      {"attention.layer_norm_rms_epsilon", {1e-6f}},
      {"attention.sliding_window", {uint32_t{64}}},
      {"attn_logit_softcapping", {50.0f}},
      {"final_logit_softcapping", {30.0f}},
      {"rope.dimension_count", {uint32_t{8}}},
      {"rope.freq_base", {10001.0f}},
      {"rope.scaling.type", {std::string("linear")}},
      {"rope.scaling.factor", {4.0f}},
      {"rope.scaling.attn_factor", {1.5f}},
      {"expert_count", {uint32_t{8}}},
      {"something.new", {true}},
  };
  for (const auto& [key, value] : changes) {
    auto b = llama_entries();
    const std::string whole = fmt::format("llama.{}", key);
    set(b, whole, value);
    for (const auto& rows : {audited(llama_entries(), b), audited(b, llama_entries())})
      EXPECT_FALSE(row(rows, whole).fine()) << key;
  }
}

// What converters write for models that do not look at it.
TEST(AuditMetadata, KeysThatNothingReadsDoNotCount) {
  const auto with = [](const char* arch, const char* key, std::optional<Value> value) {
    std::vector<Entry> out = {{"general.architecture", {std::string(arch)}},
                              {fmt::format("{}.embedding_length", arch), {uint32_t{64}}},
                              {fmt::format("{}.context_length", arch), {uint32_t{256}}},
                              {fmt::format("{}.attention.head_count", arch), {uint32_t{4}}}};
    if (value) out.push_back({fmt::format("{}.{}", arch, key), *value});
    return out;
  };
  const auto counts = [&](const char* arch, const char* key, const Value& value) {
    const auto without = with(arch, key, {});
    return !unequal(audited(with(arch, key, value), without)).empty();
  };
  constexpr const char* kRms = "attention.layer_norm_rms_epsilon";
  constexpr const char* kLayer = "attention.layer_norm_epsilon";
  EXPECT_TRUE(counts("llama", kRms, {1e-5f}));
  EXPECT_FALSE(counts("llama", kLayer, {1e-5f}));
  EXPECT_FALSE(counts("starcoder2", kRms, {1e-5f}));
  EXPECT_TRUE(counts("starcoder2", kLayer, {1e-5f}));
  EXPECT_TRUE(counts("unheard-of", kRms, {1e-5f}));
  EXPECT_FALSE(counts("stablelm", "use_parallel_residual", {false}));
  EXPECT_TRUE(counts("gptneox", "use_parallel_residual", {false}));
  constexpr const char* kOriginal = "rope.scaling.original_context_length";
  EXPECT_FALSE(counts("phi3", kOriginal, {uint32_t{4096}}));
  auto yarn = with("llama", kOriginal, Value{uint32_t{64}});
  auto without = with("llama", kOriginal, {});
  for (auto* side : {&yarn, &without}) {
    set(*side, "llama.rope.scaling.type", {std::string("yarn")});
    set(*side, "llama.rope.scaling.factor", {4.0f});
  }
  EXPECT_EQ(unequal(audited(yarn, without)),
            Texts{"llama.rope.scaling.original_context_length missing"});
}

TEST(AuditMetadata, OfExpertsItIsKnownWhatIsAssumed) {
  std::vector<Entry> plain = {{"general.architecture", {std::string("deepseek2")}},
                              {"deepseek2.embedding_length", {uint32_t{64}}},
                              {"deepseek2.feed_forward_length", {uint32_t{128}}},
                              {"deepseek2.attention.head_count", {uint32_t{4}}},
                              {"deepseek2.expert_count", {uint32_t{8}}},
                              {"deepseek2.expert_used_count", {uint32_t{2}}}};
  const std::pair<const char*, Value> usual[] = {
      {"expert_gating_func", {uint32_t{1}}},
      {"expert_weights_norm", {false}},
      {"expert_weights_scale", {1.0f}},
      {"expert_group_count", {uint32_t{1}}},
      {"expert_group_used_count", {uint32_t{1}}},
      {"expert_feed_forward_length", {uint32_t{128}}},
      {"expert_shared_feed_forward_length", {uint32_t{0}}},
      {"leading_dense_block_count", {uint32_t{0}}},
  };
  const std::pair<const char*, Value> unusual[] = {
      {"expert_gating_func", {uint32_t{2}}},
      {"expert_weights_norm", {true}},
      {"expert_weights_scale", {2.5f}},
      {"expert_group_count", {uint32_t{2}}},
      {"expert_feed_forward_length", {uint32_t{16}}},
      {"expert_shared_feed_forward_length", {uint32_t{16}}},
      {"leading_dense_block_count", {uint32_t{1}}},
  };
  const auto with = [&](const char* key, const Value& value) {
    auto out = plain;
    set(out, fmt::format("deepseek2.{}", key), value);
    return out;
  };
  for (const auto& [key, value] : usual) {
    const std::string whole = fmt::format("deepseek2.{}", key);
    EXPECT_EQ(row(audited(plain, with(key, value)), whole).verdict, KeyVerdict::kAssumed) << key;
  }
  for (const auto& [key, value] : unusual) {
    const std::string whole = fmt::format("deepseek2.{}", key);
    const auto rows = audited(plain, with(key, value));
    EXPECT_EQ(row(rows, whole).verdict, KeyVerdict::kMissing) << key;
    EXPECT_FALSE(row(rows, whole).assumed_a.is_null()) << key;
  }
}

TEST(AuditMetadata, AnotherSpellingIsTheSame) {
  auto a = llama_entries(), b = llama_entries();
  set(a, "llama.attention.head_count_kv", {uint64_t{2}});
  set(b, "llama.attention.head_count_kv", {int32_t{2}});
  set(a, "llama.attention.layer_norm_rms_epsilon", {1e-5});
  set(a, "llama.rope.scale_linear", {4.0f});
  set(b, "llama.rope.scaling.type", {std::string("linear")});
  set(b, "llama.rope.scaling.factor", {4.0f});
  set(b, "llama.rope.scaling.finetuned", {true});
  set(b, "general.file_type", {uint32_t{7}});
  EXPECT_EQ(unequal(audited(a, b)), Texts{});
}

TEST(AuditMetadata, WindowsAreComparedByLayer) {
  auto a = llama_entries();
  set(a, "llama.attention.sliding_window", {uint32_t{16}});
  auto b = a, c = a;
  set(a, "llama.attention.sliding_window_pattern", {uint32_t{2}});
  set(b, "llama.attention.sliding_window_pattern", {gguf::Array{std::vector<bool>{true, false}}});
  set(c, "llama.attention.sliding_window_pattern", {gguf::Array{std::vector<bool>{false, true}}});
  EXPECT_EQ(unequal(audited(a, b)), Texts{});
  EXPECT_EQ(unequal(audited(a, c)), Texts{"llama.attention.sliding_window_pattern different"});
}

TEST(AuditMetadata, ArchitecturesThatDoNotRunAreComparedAsTheyStand) {
  std::vector<Entry> a = {{"general.architecture", {std::string("strange")}},
                          {"strange.depth", {uint32_t{3}}},
                          {"strange.block_count", {uint32_t{3}}}};
  auto b = a;
  set(b, "strange.depth", {uint32_t{4}});
  drop(b, "strange.block_count");
  EXPECT_EQ(unequal(audited(a, b)),
            (Texts{"strange.block_count missing", "strange.depth different"}));
  auto other = a;
  set(other, "general.architecture", {std::string("llama")});
  EXPECT_FALSE(row(audited(a, other), "general.architecture").fine());
  EXPECT_EQ(unequal(audited({}, {})), Texts{});
}

std::vector<Entry> tokenizer_entries() {
  std::vector<std::string> tokens = {"<s>", "</s>", "a", "b", "ab"};
  return {{"general.architecture", {std::string("llama")}},
          {"tokenizer.ggml.model", {std::string("gpt2")}},
          {"tokenizer.ggml.pre", {std::string("llama-bpe")}},
          {"tokenizer.ggml.tokens", {gguf::Array{tokens}}},
          {"tokenizer.ggml.token_type", {gguf::Array{std::vector<int32_t>{3, 3, 1, 1, 1}}}},
          {"tokenizer.ggml.merges", {gguf::Array{std::vector<std::string>{"a b"}}}},
          {"tokenizer.ggml.bos_token_id", {uint32_t{0}}},
          {"tokenizer.ggml.eos_token_id", {uint32_t{1}}},
          {"tokenizer.chat_template", {std::string("{{ messages }}")}}};
}

TokenizerAudit tokenizers(const std::vector<Entry>& a, const std::vector<Entry>& b) {
  Files files;
  return audit_tokenizer(files.open({a, {}}), files.open({b, {}}));
}

TEST(AuditTokenizer, TheSame) {
  const TokenizerAudit found = tokenizers(tokenizer_entries(), tokenizer_entries());
  EXPECT_TRUE(found.equal());
  EXPECT_EQ(found.lists.size(), 3u);
  EXPECT_EQ(row(found.keys, "tokenizer.ggml.add_bos_token").assumed_a, true);
  EXPECT_EQ(row(found.keys, "tokenizer.ggml.add_eos_token").assumed_a, false);
  EXPECT_TRUE(tokenizers({}, {}).equal());
}

TEST(AuditTokenizer, ListsItemByItem) {
  auto b = tokenizer_entries();
  set(b, "tokenizer.ggml.tokens",
      {gguf::Array{std::vector<std::string>{"<s>", "</s>", "a", "c", "ab", "pad"}}});
  set(b, "tokenizer.ggml.token_type",
      {gguf::Array{std::vector<int64_t>{3, 3, 1, 1, 1}}});  // another width, the same numbers
  const TokenizerAudit found = tokenizers(tokenizer_entries(), b);
  EXPECT_FALSE(found.equal());
  const ListAudit& tokens = found.lists[0];
  EXPECT_EQ(tokens.key, "tokenizer.ggml.tokens");
  EXPECT_EQ(tokens.different, 2);
  EXPECT_EQ(tokens.size_b, 6);
  ASSERT_EQ(tokens.first.size(), 2u);
  EXPECT_EQ(tokens.first[0].index, 3);
  EXPECT_EQ(tokens.first[0].b, "c");
  EXPECT_TRUE(tokens.first[1].a.is_null());
  EXPECT_TRUE(found.lists[1].fine());
  drop(b, "tokenizer.ggml.merges");
  const TokenizerAudit without = tokenizers(tokenizer_entries(), b);
  EXPECT_FALSE(without.lists[2].fine());
  EXPECT_FALSE(without.lists[2].size_b.has_value());
}

TEST(AuditTokenizer, RulesAndTemplates) {
  const std::pair<const char*, Value> changes[] = {
      {"tokenizer.ggml.add_bos_token", {false}},
      {"tokenizer.ggml.add_eos_token", {true}},
      {"tokenizer.ggml.eos_token_id", {uint32_t{0}}},
      {"tokenizer.ggml.pre", {std::string("qwen2")}},
      {"tokenizer.ggml.eot_token_id", {uint32_t{1}}},
      {"tokenizer.chat_template", {std::string("{{ messages}}")}},
  };
  for (const auto& [key, value] : changes) {
    auto b = tokenizer_entries();
    set(b, key, value);
    const TokenizerAudit found = tokenizers(tokenizer_entries(), b);
    EXPECT_FALSE(found.equal()) << key;
    EXPECT_FALSE(row(found.keys, key).fine()) << key;
  }
  // The rule that holds anyway may be written down.
  auto b = tokenizer_entries();
  set(b, "tokenizer.ggml.add_bos_token", {true});
  set(b, "tokenizer.ggml.add_eos_token", {false});
  EXPECT_TRUE(tokenizers(tokenizer_entries(), b).equal());
}

TEST(AuditReport, TextAndJson) {
  Random random(fresh_seed());
  Files files;
  Model a, b;
  a.metadata = tokenizer_entries();
  b.metadata = tokenizer_entries();
  set(b.metadata, "tokenizer.ggml.eos_token_id", {uint32_t{0}});
  const Floats x = gaussian(random, 256 * 16);
  Floats plus = gaussian(random, 257), more = plus;
  for (float& value : more) value += 1;
  a.add("blk.0.ffn_up.weight", {256, 16}, x);
  b.add("blk.0.ffn_up.weight", {256, 16}, x, quant::Format::kQ4_K);
  a.add("blk.0.attn_norm.weight", {257}, plus);
  b.add("blk.0.attn_norm.weight", {257}, more);
  a.add("rope_freqs.weight", {257}, plus);
  const gguf::File file_a = files.open(a), file_b = files.open(b);
  const auto found = audit(file_a, file_b, [](int64_t) {});
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->equal());
  const std::string text = to_text(*found, 200, Paint(false), false);
  EXPECT_TRUE(
      text.starts_with("Not the same model: 1 tensor is wrong; 1 tensor is missing in B; "
                       "the tokenizers differ.\n- offset (blk.0.attn_norm.weight): "))
      << text;
  for (const char* part : {"B = A + 1", "B turns q and k at other frequencies", "Q4_K",
                           "tokenizer.ggml.eos_token_id", "- missing (rope_freqs.weight): "})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const auto json = to_json(*found);
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["tensors"][0]["verdict"], "quantized");
  EXPECT_TRUE(json["tensors"][0]["how"].is_null());
  EXPECT_GT(json["tensors"][0]["error"], 0.01);
  EXPECT_EQ(json["tensors"][1]["how"], "offset");
  EXPECT_EQ(json["tensors"][2]["verdict"], "missing");
  EXPECT_TRUE(json["tensors"][2]["error"].is_null());
  EXPECT_EQ(json["metadata"][0], (nlohmann::ordered_json{{"key", "general.architecture"},
                                                         {"a", "llama"},
                                                         {"b", "llama"},
                                                         {"verdict", "equal"},
                                                         {"assumed_a", nullptr},
                                                         {"assumed_b", nullptr}}));
  EXPECT_EQ(json["tokenizer"]["equal"], false);

  const auto same = audit(file_a, file_a, [](int64_t) {});
  ASSERT_TRUE(same.ok());
  EXPECT_TRUE(same->equal());
  EXPECT_TRUE(to_text(*same, 200, Paint(false), true)
                  .starts_with("The same model. 3 tensors: 3 equal, 0 quantized."));
}

// Files with the weight of keys and values in two tensors have the short row's sizes under the keys
// where others have those of the heads.
TEST(AuditMetadata, SizesOfLatentAttentionCountByMeaning) {
  const auto entries = [](std::initializer_list<std::pair<const char*, uint32_t>> sizes) {
    std::vector<Entry> out = {{"general.architecture", {std::string("deepseek2")}}};
    for (const auto& [key, size] : sizes) out.push_back({fmt::format("deepseek2.{}", key), {size}});
    return out;
  };
  auto whole = entries({{"embedding_length", 64},
                        {"attention.head_count", 4},
                        {"attention.kv_lora_rank", 48},
                        {"rope.dimension_count", 8},
                        {"attention.head_count_kv", 4},
                        {"attention.key_length", 24},
                        {"attention.value_length", 20}});
  auto parts = entries({{"embedding_length", 64},
                        {"attention.head_count", 4},
                        {"attention.kv_lora_rank", 48},
                        {"rope.dimension_count", 8},
                        {"attention.head_count_kv", 1},
                        {"attention.key_length", 56},
                        {"attention.value_length", 48},
                        {"attention.key_length_mla", 24},
                        {"attention.value_length_mla", 20}});
  EXPECT_EQ(unequal(audited(whole, parts)), Texts{});
  EXPECT_EQ(unequal(audited(parts, whole)), Texts{});
  EXPECT_EQ(row(audited(whole, parts), "deepseek2.attention.key_length_mla").verdict,
            KeyVerdict::kAssumed);
  set(parts, "deepseek2.attention.value_length_mla", {uint32_t{24}});
  const Texts found = unequal(audited(whole, parts));
  EXPECT_NE(std::ranges::find(found, "deepseek2.attention.value_length_mla missing"), found.end());
}

// What our own converter keeps of a folder's tokenizer is nothing that others could have.
TEST(AuditTokenizer, KeysOfOurOwnCountWhereBothFilesHaveThem) {
  auto entries = llama_entries();
  set(entries, "tokenizer.lockstep.rules", {std::string("{}")});
  Files files;
  const gguf::File plain = files.open({llama_entries(), {}}), own = files.open({entries, {}});
  EXPECT_TRUE(audit_tokenizer(plain, own).equal());
  EXPECT_TRUE(audit_tokenizer(own, plain).equal());
  set(entries, "tokenizer.lockstep.rules", {std::string("{ }")});
  EXPECT_FALSE(audit_tokenizer(own, files.open({entries, {}})).equal());
}

}  // namespace
}  // namespace lockstep::audit::test
