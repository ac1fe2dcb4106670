// Vocabularies that are broken, or merely odd: an error that names the place, or a tolerance.
#include <climits>
#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "gguf/writer.h"
#include "tokenizer/test_vocabs.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::tokenizer {
namespace {

std::string failure(Vocab vocab) {
  const auto made = Tokenizer::create(std::move(vocab));
  return made.ok() ? "" : made.error().message;
}

bool has(const std::string& message, std::string_view part) {
  return message.find(part) != std::string::npos;
}

TEST(Vocab, LengthsMustAgree) {
  Vocab vocab = small_byte_pairs();
  vocab.types.pop_back();
  EXPECT_TRUE(has(failure(vocab), "token_type has 271 entries, expected 272")) << failure(vocab);
  vocab = small_sentence_pieces();
  vocab.scores.push_back(1);
  EXPECT_TRUE(has(failure(vocab), "scores"));
  vocab.scores.clear();
  EXPECT_TRUE(has(failure(vocab), "scores has 0 entries"));
  EXPECT_TRUE(has(failure(Vocab()), "tokens is empty"));
}

TEST(Vocab, IdsMustBeInRange) {
  for (const TokenId id : {-1, 272, INT32_MAX, INT32_MIN}) {
    Vocab vocab = small_byte_pairs();
    vocab.special.bos = id;
    EXPECT_TRUE(has(failure(vocab), std::to_string(id)));
  }
}

// Ids that rules name become tokens of a text: whoever computes with them must find them.
TEST(Vocab, IdsOfRulesMustBeInRange) {
  for (Vocab vocab : {small_byte_pairs(), small_sentence_pieces(), small_unigram()}) {
    const auto size = static_cast<TokenId>(vocab.tokens.size());
    const auto with = [&](const auto& set, TokenId id) {
      Rules rules;
      rules.unknown = 0;
      set(rules, id);
      vocab.rules = std::make_shared<const Rules>(std::move(rules));
      return failure(vocab);
    };
    const std::string expected = fmt::format(
        "small: tokenizer.lockstep.rules: found the id {}, expected one below the {} "
        "tokens",
        size, size);
    const auto unknown = [](Rules& rules, TokenId id) { rules.unknown = id; };
    const auto before = [](Rules& rules, TokenId id) { rules.before = {0, id}; };
    const auto after = [](Rules& rules, TokenId id) { rules.after = {id, 0}; };
    EXPECT_EQ(with(unknown, size), expected);
    EXPECT_EQ(with(before, size), expected);
    EXPECT_EQ(with(after, size), expected);
    EXPECT_EQ(with(unknown, size - 1), "");
    EXPECT_EQ(with(before, size - 1), "");
    EXPECT_EQ(with(after, size - 1), "");
  }
}

// Whatever the other keys say: a caller takes BOS off what encode() gave.
TEST(Vocab, RulesDecideAboutBos) {
  for (const bool asked : {false, true})
    for (const bool put : {false, true}) {
      Vocab vocab = small_byte_pairs();
      vocab.add_bos = asked;
      Rules rules;
      if (put) rules.before = {*vocab.special.bos};
      vocab.rules = std::make_shared<const Rules>(std::move(rules));
      const auto made = Tokenizer::create(std::move(vocab));
      ASSERT_TRUE(made.ok()) << made.error().message;
      EXPECT_EQ((*made)->adds_bos(), put);
      EXPECT_EQ((*made)->encode("").size(), put ? 1U : 0U);
    }
}

TEST(Vocab, AskingForTokensThatAreNotNamed) {
  Vocab vocab = small_byte_pairs();
  vocab.special = {};
  EXPECT_EQ(failure(vocab), "");
  vocab.add_bos = true;
  EXPECT_TRUE(has(failure(vocab), "add_bos_token"));
  vocab.add_bos = false;
  vocab.add_eos = true;
  EXPECT_TRUE(has(failure(vocab), "add_eos_token"));
  // The default of a pre-tokenizer is no demand of the file.
  vocab.add_bos = vocab.add_eos = std::nullopt;
  vocab.pre = "llama-bpe";
  EXPECT_EQ(failure(vocab), "");
}

TEST(Vocab, ScoresMustBeNumbers) {
  Vocab vocab = small_sentence_pieces();
  vocab.scores[9] = -INFINITY;
  EXPECT_EQ(failure(vocab), "");
  vocab.scores[9] = NAN;
  EXPECT_TRUE(has(failure(vocab), "scores[9]"));
}

TEST(Vocab, MergesMustHaveTwoParts) {
  for (const char* merge : {"", "ab", "ab ", " "}) {
    Vocab vocab = small_byte_pairs();
    vocab.merges.push_back(merge);
    EXPECT_TRUE(has(failure(vocab), "merges[11]")) << merge;
  }
}

TEST(Vocab, UnknownPreTokenizerIsNamed) {
  const std::string unknown = failure(small_byte_pairs("no-such-thing"));
  EXPECT_TRUE(has(unknown, "no-such-thing") && has(unknown, "qwen2")) << unknown;
  EXPECT_TRUE(has(failure(small_byte_pairs("")), "names no pre-tokenizer"));
}

TEST(Vocab, LongSpecialTokensAreRefused) {
  Vocab vocab = small_byte_pairs();
  add_token(vocab, std::string(5000, '<'), TokenType::kControl);
  EXPECT_TRUE(has(failure(vocab), "5000 bytes"));
}

TEST(Vocab, EmptyAndRepeatedTokensAreTolerated) {
  Vocab vocab = small_byte_pairs();
  add_token(vocab, "");
  add_token(vocab, "", TokenType::kControl);
  add_token(vocab, "hello");  // the lower id counts
  add_token(vocab, "<tool>", TokenType::kUserDefined);
  const auto made = Tokenizer::create(vocab);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ((*made)->encode("hello<tool>"), (std::vector<TokenId>{259, 269}));
}

// From files.
class VocabFile : public testing::Test {
 protected:
  std::string load(const std::vector<gguf::Entry>& metadata) {
    auto writer = gguf::Writer::create(path_, metadata, {});
    EXPECT_TRUE(writer.ok() && writer->finish().ok());
    const auto file = gguf::File::open(path_);
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
    const auto loaded = Tokenizer::load(*file);
    return loaded.ok() ? "" : loaded.error().message;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::vector<gguf::Entry> sentence_pieces() {
    const Vocab vocab = small_sentence_pieces();
    std::vector<int32_t> types;
    for (const TokenType type : vocab.types) types.push_back(static_cast<int32_t>(type));
    return {{"general.architecture", {std::string("llama")}},
            {"tokenizer.ggml.model", {std::string("llama")}},
            {"tokenizer.ggml.tokens", {gguf::Array{vocab.tokens}}},
            {"tokenizer.ggml.scores", {gguf::Array{vocab.scores}}},
            {"tokenizer.ggml.token_type", {gguf::Array{types}}}};
  }

  std::string path_ = testing::TempDir() + fmt::format("vocab_test_{}.gguf", getpid());
};

TEST_F(VocabFile, Loads) {
  EXPECT_EQ(load(sentence_pieces()), "");
  auto ids = sentence_pieces();
  ids.push_back({"tokenizer.ggml.eot_token_id", {uint32_t{7}}});
  ids.push_back({"tokenizer.ggml.eom_token_id", {uint32_t{0xffffffff}}});  // none
  EXPECT_EQ(load(ids), "");
}

TEST_F(VocabFile, WithoutTokenizer) {
  const gguf::Entry arch = {"general.architecture", {std::string("llama")}};
  EXPECT_TRUE(has(load({arch}), "no tokenizer"));
  EXPECT_TRUE(has(load({arch, {"tokenizer.ggml.model", {std::string("none")}}}), "no tokenizer"));
  const std::string unknown = load({arch, {"tokenizer.ggml.model", {std::string("bert")}}});
  EXPECT_TRUE(has(unknown, "'bert'") && has(unknown, "gpt2, llama")) << unknown;
}

TEST_F(VocabFile, WrongTypesAreNamed) {
  const std::pair<const char*, gguf::Value> wrong[] = {
      {"tokenizer.ggml.tokens", {uint32_t{5}}},
      {"tokenizer.ggml.scores", {std::string("x")}},
      {"tokenizer.ggml.token_type", {gguf::Array{std::vector<std::string>{"x"}}}},
      {"tokenizer.ggml.bos_token_id", {std::string("<s>")}},
      {"tokenizer.ggml.bos_token_id", {uint32_t{99999}}},
      {"tokenizer.ggml.add_bos_token", {uint32_t{1}}},
      {"tokenizer.ggml.model", {uint32_t{1}}},
      {"general.name", {uint32_t{1}}},
  };
  for (const auto& [key, value] : wrong) {
    auto metadata = sentence_pieces();
    std::erase_if(metadata, [&key = key](const gguf::Entry& entry) { return entry.key == key; });
    metadata.push_back({key, value});
    EXPECT_TRUE(has(load(metadata), key)) << key << ": " << load(metadata);
  }
}

TEST_F(VocabFile, TypesAreChecked) {
  auto metadata = sentence_pieces();
  std::vector<int32_t> types(small_sentence_pieces().tokens.size(), 1);
  types[3] = 7;
  metadata.back().value = {gguf::Array{types}};
  EXPECT_TRUE(has(load(metadata), "token_type[3] is 7"));
  metadata.pop_back();  // no types at all: every token is normal
  EXPECT_EQ(load(metadata), "");
}

}  // namespace
}  // namespace lockstep::tokenizer
