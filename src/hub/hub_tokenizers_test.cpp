// Small tokenizers of every kind, with the ids that the hub's library gives to hard texts
// (tests/fixtures/make_hub_tokenizers.py).
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "gguf/file.h"
#include "hub/tokenizer_json.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::hub {
namespace {

using nlohmann::json;
using tokenizer::Tokenizer;

const json& stored_tokenizers() {
  static const json all = [] {
    std::ifstream stream(std::filesystem::path(LOCKSTEP_FIXTURES) / "hub_tokenizers.json");
    return json::parse(stream);
  }();
  return all;
}

std::unique_ptr<Tokenizer> load(const json& tokenizer) {
  auto entries = read_tokenizer(tokenizer.dump(), "t.json", 100'000);
  EXPECT_TRUE(entries.ok()) << entries.error().message;
  gguf::Assembly parts;
  parts.path = "folder";
  parts.metadata = *std::move(entries);
  const auto file = gguf::File::assemble(std::move(parts));
  EXPECT_TRUE(file.ok()) << file.error().message;
  auto loaded = Tokenizer::load(*file);
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  return std::move(*loaded);
}

TEST(HubTokenizers, GiveTheIdsOfTheHubsLibrary) {
  ASSERT_GE(stored_tokenizers().size(), 20U);
  for (const json& each : stored_tokenizers()) {
    const auto tokens = load(each["tokenizer"]);
    for (const json& pair : each["texts"]) {
      const auto text = pair[0].get<std::string>();
      EXPECT_EQ(tokens->encode(text), pair[1].get<std::vector<tokenizer::TokenId>>())
          << each["name"] << ": " << printable(text);
    }
  }
}

// Any bytes: what is no UTF-8 comes through where the vocabulary has bytes, and stays in its place.
TEST(HubTokenizers, TakeAnyBytes) {
  for (const json& each : stored_tokenizers()) {
    const auto tokens = load(each["tokenizer"]);
    for (const std::string text : {"\xff", "a\xc3", "\xe2\x96", "e\xcc\x81\x80z", "\xf0\x9f\x91"}) {
      const auto ids = tokens->encode("ab" + text + "ab", {.add_special = false});
      ASSERT_FALSE(ids.empty());
      const std::string back = tokens->decode(ids, true);
      EXPECT_EQ(back.find('a'), back.starts_with(' ') ? 1U : 0U) << each["name"];
      EXPECT_EQ(back.substr(back.size() - 1), "b") << each["name"];
    }
  }
}

TEST(HubTokenizers, SpecialTokensMayBePlainText) {
  for (const json& each : stored_tokenizers()) {
    const auto tokens = load(each["tokenizer"]);
    const auto end = tokens->encode("</s>", {.add_special = false});
    ASSERT_EQ(end.size(), 1U) << each["name"];
    EXPECT_EQ(tokens->text(end[0]), "</s>");
    // Vocabularies of texts may have this one as well.
    if (!each["name"].get<std::string>().starts_with("byte level")) continue;
    EXPECT_GT(tokens->encode("</s>", {.add_special = false, .parse_special = false}).size(), 1U)
        << each["name"];
  }
}

using TokenIds = std::vector<tokenizer::TokenId>;

// Bytes that are tokens, then `tokens`, whose merges are all pairs that make one of `merged`.
json pieces_of(const std::vector<std::string>& tokens, const std::vector<std::string>& merged) {
  json vocabulary = {{"<unk>", 0}};
  for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = byte + 1;
  for (const std::string& token : tokens) {
    const auto id = static_cast<int64_t>(vocabulary.size());
    vocabulary[token] = id;
  }
  json merges = json::array();
  for (const std::string& token : merged)
    for (size_t cut = 1; cut < token.size(); ++cut)
      if (vocabulary.contains(token.substr(0, cut)) && vocabulary.contains(token.substr(cut)))
        merges.push_back({token.substr(0, cut), token.substr(cut)});
  return {{"model",
           {{"type", "BPE"},
            {"vocab", vocabulary},
            {"merges", merges},
            {"byte_fallback", true},
            {"unk_token", "<unk>"}}},
          {"added_tokens", json::array()}};
}

// "</s>" as plain text: both halves are tokens, but no merge makes a special token of them.
TEST(HubTokenizers, PlainTextNeverMergesToASpecialToken) {
  json source = pieces_of({"</s>", "<", "/", "s", ">", "</", "s>"}, {"</", "s>"});
  source["added_tokens"] = {{{"id", 257}, {"content", "</s>"}, {"special", true}}};
  const auto tokens = load(source);
  EXPECT_EQ(tokens->encode("</s>"), TokenIds{257});
  EXPECT_EQ(tokens->encode("</s>", {.parse_special = false}), (TokenIds{262, 263}));
  // Nor do bytes of a text, written out.
  const auto bytes =
      load(pieces_of({"<", "0", "x", "A", ">", "<0", "<0x", "A>"}, {"<0", "<0x", "A>"}));
  EXPECT_EQ(bytes->encode("<0x0A>"), (TokenIds{263, 258, 264}));
}

// The same where words are taken whole: a token that was added is no word of the vocabulary.
TEST(HubTokenizers, AnAddedTokenIsNoWord) {
  json vocabulary = json::object();
  for (const char* token : {"t", "o", "l", "oo", "tool?"}) {
    const auto id = static_cast<int64_t>(vocabulary.size());
    vocabulary[token] = id;
  }
  const auto tokens = load(
      {{"model",
        {{"type", "BPE"}, {"ignore_merges", true}, {"vocab", vocabulary}, {"merges", {"o o"}}}},
       {"pre_tokenizer",
        {{"type", "Sequence"},
         {"pretokenizers",
          {{{"type", "Split"},
            {"behavior", "Isolated"},
            {"pattern",
             {{"Regex",
               "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
               "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}}}},
           {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
       {"added_tokens", {{{"id", 5}, {"content", "tool"}, {"special", true}}}}});
  EXPECT_EQ(tokens->encode("tool"), TokenIds{5});
  EXPECT_EQ(tokens->encode("tool", {.parse_special = false}), (TokenIds{0, 3, 2}));
}

// A character that is no token is bytes before it can merge.
TEST(HubTokenizers, OnlyTokensMerge) {
  const auto tokens = load(pieces_of({"a", "b", "\u00e9a", "ab"}, {"ab"}));
  EXPECT_EQ(tokens->encode("\u00e9ab"), (TokenIds{1 + 0xc3, 1 + 0xa9, 260}));
  EXPECT_EQ(tokens->encode("\u00e9a"), (TokenIds{1 + 0xc3, 1 + 0xa9, 257}));
}

TEST(HubTokenizers, WithoutAllBytesACharacterIsUnknown) {
  for (const bool fused : {false, true}) {
    json source = pieces_of({"a"}, {});
    source["model"]["fuse_unk"] = fused;
    source["model"]["vocab"].erase("<0xA9>");
    const auto id = source["model"]["vocab"]["<0xFF>"].get<int>();
    source["model"]["vocab"]["-"] = 1 + 0xa9;  // a token in its place
    EXPECT_EQ(id, 256);
    const TokenIds expected = fused ? TokenIds{257, 0, 257, 0} : TokenIds{257, 0, 0, 257, 0};
    EXPECT_EQ(load(source)->encode("a\u00e9\u00e9a\u00e9"), expected);
    // Also where one is the end of a word, and the other the start of the next.
    source["model"]["vocab"].erase("<0x81>");
    source["model"]["vocab"]["+"] = 1 + 0x81;
    const TokenIds words = fused ? TokenIds{257, 0, 257} : TokenIds{257, 0, 0, 0, 257};
    EXPECT_EQ(load(source)->encode("a\u00e9\u2581\u00e9a"), words);
  }
  // Of the byte level, a byte.
  for (const bool fused : {false, true}) {
    const auto tokens =
        load({{"model",
               {{"type", "BPE"},
                {"unk_token", "b"},
                {"fuse_unk", fused},
                {"vocab", {{"a", 0}, {"b", 1}}},
                {"merges", json::array()}}},
              {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}});
    EXPECT_EQ(tokens->encode("axxa"), fused ? (TokenIds{0, 1, 0}) : (TokenIds{0, 1, 1, 0}));
  }
}

// Where no token stands for them, unknown characters are gone before the others merge.
TEST(HubTokenizers, WithoutAnUnknownTokenCharactersVanish) {
  json source = pieces_of({"a", "b", "\u2581", "ab", "\u2581\u2581"}, {"ab", "\u2581\u2581"});
  source["model"].erase("unk_token");
  for (const char* byte : {"<0xA9>", "<0xC3>"}) {
    const int id = source["model"]["vocab"][byte].get<int>();
    source["model"]["vocab"].erase(byte);
    source["model"]["vocab"][byte + 1] = id;  // a token in its place
  }
  const auto tokens = load(source);
  EXPECT_EQ(tokens->encode("a\u00e9\u00e9b"), TokenIds{260});
  EXPECT_EQ(tokens->encode("\u2581\u00e9\u2581"), TokenIds{261});
  EXPECT_EQ(tokens->encode("\u00e9"), TokenIds{});
  EXPECT_EQ(tokens->encode("a\u2581b"), (TokenIds{257, 259, 258}));
  const auto bytes =
      load({{"model",
             {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}},
            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}});
  EXPECT_EQ(bytes->encode("axxb"), TokenIds{2});
  EXPECT_EQ(bytes->encode("xa"), TokenIds{0});
  EXPECT_EQ(bytes->encode("x"), TokenIds{});
}

json unigram_of(const json& added, const json& normalizer, const char* prefix) {
  json vocabulary = json::array();
  for (const char* token : {"<unk>", "a", "b", " ", "\u2581"}) vocabulary.push_back({token, -1.5});
  return {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocabulary}}},
          {"normalizer", normalizer},
          {"pre_tokenizer", {{"type", "Metaspace"}, {"prepend_scheme", prefix}, {"split", false}}},
          {"added_tokens", added}};
}

// White space that one token took, and of which another begins.
TEST(HubTokenizers, TokensOfWhiteSpaceTakeItBack) {
  const json added = {{{"id", 5}, {"content", "<x>"}, {"rstrip", true}, {"normalized", false}},
                      {{"id", 6}, {"content", "\t"}, {"normalized", false}}};
  const auto tokens = load(unigram_of(added, nullptr, "never"));
  EXPECT_EQ(tokens->encode("<x>  a"), (TokenIds{5, 1}));
  EXPECT_EQ(tokens->encode("<x>\t a"), (TokenIds{5, 6, 4, 1}));
  EXPECT_EQ(tokens->encode("<x> \t\ta"), (TokenIds{5, 6, 6, 1}));
}

// The library looks where a text stood before it was normalized.
TEST(HubTokenizers, WhatLostItsStartDoesNotBeginAText) {
  const auto first = load(unigram_of(json::array(), {{"type", "Strip"}}, "first"));
  EXPECT_EQ(first->encode("ab"), (TokenIds{4, 1, 2}));
  EXPECT_EQ(first->encode("ab "), (TokenIds{4, 1, 2}));
  EXPECT_EQ(first->encode(" ab"), (TokenIds{1, 2}));
  const auto always = load(unigram_of(json::array(), {{"type", "Strip"}}, "always"));
  EXPECT_EQ(always->encode(" ab"), (TokenIds{4, 1, 2}));
}

}  // namespace
}  // namespace lockstep::hub
