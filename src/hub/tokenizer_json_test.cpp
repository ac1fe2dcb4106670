#include "hub/tokenizer_json.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"

namespace lockstep::hub {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

json byte_level() {
  return {
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"added_tokens",
       {{{"id", 4}, {"content", "<e>"}, {"special", true}},
        {{"id", 5}, {"content", "<call>"}, {"special", false}}}}};
}

json pieces() {
  return {{"model",
           {{"type", "BPE"},
            {"vocab",
             {{"<unk>", 0}, {"<0x0A>", 1}, {"a", 2}, {"b", 3}, {"ab", 4}, {"aba", 5}, {"ba", 6}}},
            {"merges", json::parse(R"([["a","b"],["b","a"],["ab","a"],["a","ba"]])")},
            {"byte_fallback", true},
            {"unk_token", "<unk>"}}},
          {"normalizer", {{"type", "Prepend"}, {"prepend", "\u2581"}}}};
}

Result<std::vector<gguf::Entry>> read(const json& tokenizer, int64_t rows = 100) {
  return read_tokenizer(tokenizer.dump(), "t.json", rows);
}
std::string problem(const json& tokenizer) {
  const auto result = read(tokenizer);
  return result.ok() ? "none" : result.error().message;
}

template <class T>
T at(const std::vector<gguf::Entry>& entries, const std::string& key) {
  const auto found = std::ranges::find(entries, "tokenizer.ggml." + key, &gguf::Entry::key);
  EXPECT_NE(found, entries.end()) << key;
  return found != entries.end() ? std::get<T>(found->value.value) : T{};
}
template <class T>
std::vector<T> list(const std::vector<gguf::Entry>& entries, const std::string& key) {
  return std::get<std::vector<T>>(at<gguf::Array>(entries, key).items);
}

// Where merges make every token, it is the same whether words are taken whole.
TEST(TokenizerJson, WholeWordsMayChangeNothing) {
  json tokenizer = byte_level();
  tokenizer["model"]["ignore_merges"] = true;
  const auto read_one = read(tokenizer);
  ASSERT_TRUE(read_one.ok()) << read_one.error().message;
  EXPECT_EQ(at<std::string>(*read_one, "pre"), "gpt-2");
}

TEST(TokenizerJson, CharactersOfPatternsMayStandThemselves) {
  const auto split = [](const char* pattern) {
    return json{{"type", "Split"},
                {"pattern", {{"Regex", pattern}}},
                {"behavior", "Isolated"},
                {"invert", false}};
  };
  json tokenizer = byte_level();
  tokenizer["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {split("[\\r\\n]"),
        split("\\s?\\p{L}+"),
        split("\\s?\\p{P}+"),
        split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
        {{"type", "Digits"}, {"individual_digits", true}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const auto found = read(tokenizer);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(at<std::string>(*found, "pre"), "deepseek-coder");
}

TEST(TokenizerJson, OfByteLevels) {
  json tokenizer = byte_level();
  tokenizer["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<e>"}}}}, {{"Sequence", {{"id", "A"}}}}}}};
  const auto entries = read(tokenizer);
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  EXPECT_EQ(at<std::string>(*entries, "model"), "gpt2");
  EXPECT_EQ(at<std::string>(*entries, "pre"), "gpt-2");
  EXPECT_EQ(list<std::string>(*entries, "tokens"),
            (Texts{"a", "b", "ab", "[PAD3]", "<e>", "<call>"}));
  EXPECT_EQ(list<int32_t>(*entries, "token_type"), (std::vector<int32_t>{1, 1, 1, 5, 3, 4}));
  EXPECT_EQ(list<std::string>(*entries, "merges"), (Texts{"a b"}));
  EXPECT_EQ(at<uint32_t>(*entries, "bos_token_id"), 4U);
  EXPECT_TRUE(at<bool>(*entries, "add_bos_token"));
  EXPECT_FALSE(at<bool>(*entries, "add_eos_token"));
  // What the model has no embedding for is left out.
  EXPECT_EQ(list<std::string>(*read(byte_level(), 5), "tokens").size(), 5U);
}

TEST(TokenizerJson, OfPieces) {
  const auto entries = read(pieces());
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  EXPECT_EQ(at<std::string>(*entries, "model"), "llama");
  EXPECT_EQ(list<int32_t>(*entries, "token_type"), (std::vector<int32_t>{2, 6, 1, 1, 1, 1, 1}));
  EXPECT_EQ(list<float>(*entries, "scores"), (std::vector<float>{0, 0, 0, 0, -1, -3, -2}));
  EXPECT_TRUE(at<bool>(*entries, "add_space_prefix"));
}

TEST(TokenizerJson, WhatIsNotSupportedIsNamed) {
  json tokenizer = byte_level();
  tokenizer["model"]["type"] = "Unigram";
  EXPECT_EQ(problem(tokenizer), "t.json: model.type: found \"Unigram\", expected \"BPE\"");
  tokenizer = byte_level();
  tokenizer["model"]["vocab"]["z"] = -1;
  EXPECT_EQ(problem(tokenizer),
            "t.json: model.vocab.z: found -1, expected a whole number from 0 to 4000000");
  tokenizer = byte_level();
  tokenizer["model"]["merges"] = {"ab"};
  EXPECT_EQ(problem(tokenizer),
            "t.json: model.merges[0]: found \"ab\", expected two tokens with a space between");
  tokenizer = byte_level();
  tokenizer["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_EQ(problem(tokenizer),
            "t.json: normalizer.type: found \"Lowercase\", expected \"NFC\", or no normalizer");
  tokenizer = byte_level();
  tokenizer["model"]["ignore_merges"] = true;
  tokenizer["model"]["vocab"]["bab"] = 3;  // which no merge makes
  EXPECT_EQ(problem(tokenizer),
            "t.json: pre_tokenizer: found an object of 2, expected patterns "
            "that are known; ignore_merges is true");
  tokenizer = byte_level();
  tokenizer["post_processor"] = {{"type", "BertProcessing"}};
  EXPECT_EQ(problem(tokenizer),
            "t.json: post_processor.type: found \"BertProcessing\", expected "
            "TemplateProcessing or ByteLevel");
  tokenizer = pieces();
  tokenizer["model"]["byte_fallback"] = false;
  EXPECT_EQ(problem(tokenizer),
            "t.json: model.byte_fallback: found false, expected true, or a "
            "ByteLevel pre_tokenizer");
  // A score for each token cannot say that only some pairs make it.
  tokenizer = pieces();
  tokenizer["model"]["merges"] = json::parse(R"([["a","b"],["b","a"],["ab","a"]])");
  EXPECT_EQ(problem(tokenizer),
            "t.json: model.merges: found an array of 3, expected all pairs that "
            "make a token, as SentencePiece has them");
  tokenizer["model"]["merges"] = json::parse(R"([["ab","a"],["a","b"],["b","a"],["a","ba"]])");
  EXPECT_EQ(problem(tokenizer),
            "t.json: model.merges: found an array of 4, expected the pairs of a token together");
}

// What ends an answer: of generation_config.json, or else of config.json, one or several.
TEST(TokenizerJson, AnAnswerMayEndInSeveralWays) {
  const TemporaryFolder temporary = TemporaryFolder::create().value();
  const std::filesystem::path folder = temporary.path();
  const auto write = [&](const char* name, const json& content) {
    std::ofstream(folder / name) << content.dump();
  };
  const auto ends = [&] {
    const auto entries = folder_tokenizer(folder.string(), 9, true);
    std::vector<int64_t> out;
    for (const char* name : {"eos", "eot", "eom"}) {
      const auto found = std::ranges::find(entries, fmt::format("tokenizer.ggml.{}_token_id", name),
                                           &gguf::Entry::key);
      out.push_back(found == entries.end() ? -1 : int64_t{std::get<uint32_t>(found->value.value)});
    }
    return out;
  };
  using Ids = std::vector<int64_t>;
  write("tokenizer.json", byte_level());
  EXPECT_EQ(ends(), (Ids{-1, -1, -1}));
  write("config.json", {{"eos_token_id", 5}});
  EXPECT_EQ(ends(), (Ids{5, -1, -1}));
  write("generation_config.json", json::object());
  EXPECT_EQ(ends(), (Ids{5, -1, -1}));
  write("generation_config.json", {{"eos_token_id", {2, 4, 2, 1}}});
  EXPECT_EQ(ends(), (Ids{2, 4, 1}));
  write("tokenizer_config.json", {{"eos_token", "<e>"}});
  EXPECT_EQ(ends(), (Ids{4, 2, 1}));
  write("generation_config.json", {{"eos_token_id", {0, 1, 2, 3, 77}}});  // no room for all
  EXPECT_EQ(ends(), (Ids{4, 0, 1}));
  write("generation_config.json", {{"eos_token_id", "<e>"}});  // then there is no tokenizer
  EXPECT_EQ(ends(), (Ids{-1, -1, -1}));
}

TEST(TokenizerJson, OfAFolderWithItsTemplate) {
  const TemporaryFolder temporary = TemporaryFolder::create().value();
  const std::filesystem::path folder = temporary.path();
  EXPECT_EQ(at<std::string>(folder_tokenizer(folder.string(), 9, true), "model"), "none");
  std::ofstream(folder / "tokenizer.json") << byte_level().dump();
  std::ofstream(folder / "tokenizer_config.json")
      << json({{"eos_token", {{"content", "<e>"}}},
               {"chat_template",
                {{{"name", "other"}, {"template", "no"}},
                 {{"name", "default"}, {"template", "yes"}}}}})
             .dump();
  auto entries = folder_tokenizer(folder.string(), 9, true);
  EXPECT_EQ(at<uint32_t>(entries, "eos_token_id"), 4U);
  const auto text = [&] {
    const auto found = std::ranges::find(entries, "tokenizer.chat_template", &gguf::Entry::key);
    return std::get<std::string>(found->value.value);
  };
  EXPECT_EQ(text(), "yes");
  std::ofstream(folder / "chat_template.jinja") << "own";
  entries = folder_tokenizer(folder.string(), 9, true);
  EXPECT_EQ(text(), "own");
  // One that is not supported leaves a model that runs on ids.
  std::ofstream(folder / "tokenizer.json") << "{";
  EXPECT_EQ(at<std::string>(folder_tokenizer(folder.string(), 9, true), "model"), "none");
}

}  // namespace
}  // namespace lockstep::hub
