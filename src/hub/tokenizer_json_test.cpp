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
       {{{"id", 3}, {"content", "<e>"}, {"special", true}},
        {{"id", 4}, {"content", "<call>"}, {"special", false}}}}};
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
  EXPECT_EQ(list<std::string>(*entries, "tokens"), (Texts{"a", "b", "ab", "<e>", "<call>"}));
  EXPECT_EQ(list<int32_t>(*entries, "token_type"), (std::vector<int32_t>{1, 1, 1, 3, 4}));
  EXPECT_EQ(list<std::string>(*entries, "merges"), (Texts{"a b"}));
  EXPECT_EQ(at<uint32_t>(*entries, "bos_token_id"), 3U);
  EXPECT_TRUE(at<bool>(*entries, "add_bos_token"));
  EXPECT_FALSE(at<bool>(*entries, "add_eos_token"));
  // What the model has no embedding for is left out.
  EXPECT_EQ(list<std::string>(*read(byte_level(), 4), "tokens").size(), 4U);
  // Ids that nothing has are padding.
  json gap = byte_level();
  gap["model"]["vocab"]["ba"] = 6;
  gap["added_tokens"] = json::array();
  EXPECT_EQ(list<std::string>(*read(gap), "tokens"),
            (Texts{"a", "b", "ab", "[PAD3]", "[PAD4]", "[PAD5]", "ba"}));
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
  tokenizer["model"]["type"] = "WordPiece";
  EXPECT_EQ(problem(tokenizer),
            "t.json: model.type: found \"WordPiece\", expected \"BPE\" or \"Unigram\"");
  tokenizer = byte_level();
  tokenizer["model"]["vocab"]["z"] = -1;
  EXPECT_EQ(problem(tokenizer),
            "t.json: model.vocab.z: found -1, expected a whole number from 0 to 4000000");
  tokenizer = byte_level();
  tokenizer["model"]["merges"] = {"ab"};
  EXPECT_EQ(problem(tokenizer),
            "t.json: model.merges[0]: found \"ab\", expected two tokens with a space between");
  tokenizer = byte_level();
  tokenizer["normalizer"] = {{"type", "BertNormalizer"}};
  EXPECT_EQ(problem(tokenizer),
            "t.json: normalizer.type: found \"BertNormalizer\", expected NFC, NFD, NFKC, NFKD, "
            "Lowercase, StripAccents, Strip, Replace, Prepend, Nmt, Precompiled or Sequence");
  tokenizer = byte_level();
  tokenizer["model"]["ignore_merges"] = true;
  tokenizer["model"]["vocab"]["bab"] = 3;  // which no merge makes
  tokenizer["added_tokens"] = json::array();
  EXPECT_EQ(problem(tokenizer),
            "t.json: pre_tokenizer: found an object of 2, expected patterns "
            "that are known; ignore_merges is true");
  tokenizer = byte_level();
  tokenizer["post_processor"] = {{"type", "OtherProcessing"}};
  EXPECT_EQ(problem(tokenizer),
            "t.json: post_processor.type: found \"OtherProcessing\", expected "
            "TemplateProcessing, BertProcessing, RobertaProcessing or ByteLevel");
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

// What the library reads and would make other tokens of than we do.
TEST(TokenizerJson, WhatWouldMakeOtherTokensIsNamed) {
  const auto with = [](json tokenizer, const char* pointer, const json& value) {
    tokenizer[json::json_pointer(pointer)] = value;
    return problem(tokenizer);
  };
  for (const json& tokenizer : {byte_level(), pieces()}) {
    EXPECT_EQ(with(tokenizer, "/model/end_of_word_suffix", "</w>"),
              "t.json: model.end_of_word_suffix: found \"</w>\", expected none");
    EXPECT_EQ(with(tokenizer, "/model/continuing_subword_prefix", "##"),
              "t.json: model.continuing_subword_prefix: found \"##\", expected none");
    EXPECT_EQ(with(tokenizer, "/model/dropout", 0.5),
              "t.json: model.dropout: found 0.5, expected 0, or none: else tokens are a matter of "
              "chance");
    EXPECT_EQ(with(tokenizer, "/model/dropout", 0), "none");
    EXPECT_EQ(with(tokenizer, "/model/end_of_word_suffix", ""), "none");
  }
  EXPECT_EQ(with(byte_level(), "/model/byte_fallback", true),
            "t.json: model.byte_fallback: found true, expected false, where a byte is no token of "
            "the byte level");
  // A token that is no token of the vocabulary gets the next id, whatever the file says.
  EXPECT_EQ(with(byte_level(), "/added_tokens/1/id", 9),
            "t.json: added_tokens[1].id: found 9, expected 4, the next one or that of the "
            "vocabulary");
  EXPECT_EQ(with(byte_level(), "/added_tokens/0/content", "ab"),
            "t.json: added_tokens[0].id: found 3, expected 2, the next one or that of the "
            "vocabulary");
  EXPECT_TRUE(with(byte_level(), "/model/vocab", {{"a", 0}, {std::string(5000, 'a'), 1}})
                  .ends_with("expected a token of at most 4096 bytes"));
  // A text that becomes nothing is found everywhere.
  json nothing = byte_level();
  nothing["normalizer"] = {{"type", "Strip"}};
  EXPECT_EQ(with(nothing, "/added_tokens/1/content", " "),
            "t.json: added_tokens[1].content: found \" \", expected a text of which the normalizer "
            "leaves 1 to 4096 bytes (it leaves 0)");
}

TEST(TokenizerJson, StepsAfterByteLevelSeeItsLetters) {
  const auto split = [](const char* pattern, const char* behaviour, bool invert) {
    return json{{"type", "Split"},
                {"pattern", {{"Regex", pattern}}},
                {"behavior", behaviour},
                {"invert", invert}};
  };
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const char* gpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  json tokenizer = byte_level();
  const auto steps = [&](const json& list) {
    tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", list}};
    return problem(tokenizer);
  };
  EXPECT_EQ(steps({split(gpt2, "Isolated", false), bytes}), "none");
  EXPECT_EQ(steps({split(gpt2, "Removed", true), bytes}), "none");
  EXPECT_EQ(steps({bytes, split(gpt2, "Isolated", false)}),
            "t.json: pre_tokenizer.pretokenizers[1].type: found \"Split\", expected no other step "
            "after ByteLevel");
  // What lies between the matches would be lost.
  const char* words = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)";
  EXPECT_EQ(steps({split(words, "Isolated", false), bytes}), "none");
  EXPECT_EQ(steps({split(words, "Removed", true), bytes}),
            "t.json: pre_tokenizer.pretokenizers[0].behavior: found \"Removed\", expected "
            "\"Isolated\"");
}

TEST(TokenizerJson, WhatStandsAroundATextIsReadAsItIsUsed) {
  const auto around = [](const json& processor) -> json {
    json tokenizer = byte_level();
    tokenizer["post_processor"] = processor;
    const auto entries = read(tokenizer);
    if (!entries.ok()) return entries.error().message;
    const auto rules = std::ranges::find(*entries, "tokenizer.lockstep.rules", &gguf::Entry::key);
    const json stored = json::parse(std::get<std::string>(rules->value.value));
    return {stored["before"], stored["after"]};
  };
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto token = [](const char* name) { return json{{"SpecialToken", {{"id", name}}}}; };
  const auto framed = [&](const json& parts, const json& names = json::object()) {
    return json{{"type", "TemplateProcessing"}, {"single", parts}, {"special_tokens", names}};
  };
  // A name may stand for several tokens, and be no token itself.
  EXPECT_EQ(around(framed({token("start"), text}, {{"start", {{"ids", {4, 3}}}}})),
            json({{4, 3}, json::array()}));
  for (const char* type : {"BertProcessing", "RobertaProcessing"})
    EXPECT_EQ(around({{"type", type}, {"cls", {"<e>", 3}}, {"sep", {"<call>", 4}}}),
              json({{3}, {4}}));
  // Each processor frames what the one before it made.
  const json inner = framed({token("<e>"), text, token("a")});
  const json outer = framed({token("<call>"), text, token("b")});
  EXPECT_EQ(around({{"type", "Sequence"}, {"processors", {inner, outer}}}), json({{4, 3}, {0, 1}}));
  EXPECT_EQ(around(framed({token("<e>"), text, text})),
            "t.json: post_processor.single: found an array of 3, expected one Sequence \"A\" among "
            "special tokens");
  EXPECT_EQ(around(framed({token("start"), text}, {{"start", {{"ids", {5}}}}})),
            "t.json: post_processor.special_tokens.start.ids[0]: found 5, expected a whole number "
            "from 0 to 4");
}

json unigram() {
  return {
      {"model",
       {{"type", "Unigram"},
        {"unk_id", 0},
        {"byte_fallback", true},
        {"vocab", json::parse(R"([["<unk>", 0], ["<0x0A>", -9.5], ["a", -1.1], ["b", -2]])")}}},
      {"normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}}},
      {"pre_tokenizer", {{"type", "Metaspace"}}},
      {"added_tokens", {{{"id", 4}, {"content", "<e>"}, {"special", true}}}}};
}

TEST(TokenizerJson, OfUnigram) {
  const auto entries = read(unigram());
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  EXPECT_EQ(at<std::string>(*entries, "model"), "t5");
  EXPECT_EQ(list<std::string>(*entries, "tokens"), (Texts{"<unk>", "<0x0A>", "a", "b", "<e>"}));
  EXPECT_EQ(list<int32_t>(*entries, "token_type"), (std::vector<int32_t>{2, 6, 1, 1, 3}));
  EXPECT_EQ(list<float>(*entries, "scores"), (std::vector<float>{0, -9.5F, -1.1F, -2, 0}));
  EXPECT_EQ(at<uint32_t>(*entries, "unknown_token_id"), 0U);
  EXPECT_TRUE(at<bool>(*entries, "add_space_prefix"));
  EXPECT_TRUE(at<bool>(*entries, "remove_extra_whitespaces"));
  EXPECT_FALSE(at<bool>(*entries, "add_eos_token"));
  // -1.1 is no float, so the whole numbers are there too.
  const auto exact = std::ranges::find(*entries, "tokenizer.lockstep.scores", &gguf::Entry::key);
  ASSERT_NE(exact, entries->end());
  EXPECT_EQ(std::get<std::vector<double>>(std::get<gguf::Array>(exact->value.value).items),
            (std::vector<double>{0, -9.5, -1.1, -2, 0}));
  json tokenizer = unigram();
  tokenizer["model"]["vocab"][2][1] = -1;
  const auto floats = read(tokenizer);
  ASSERT_TRUE(floats.ok());
  EXPECT_EQ(std::ranges::find(*floats, "tokenizer.lockstep.scores", &gguf::Entry::key),
            floats->end());
}

// Added tokens are counted from all tokens on, also from those that the model has no rows for.
TEST(TokenizerJson, UnigramMayHaveMoreTokensThanTheModelHasRows) {
  const auto entries = read(unigram(), 3);
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  EXPECT_EQ(list<std::string>(*entries, "tokens"), (Texts{"<unk>", "<0x0A>", "a"}));
  EXPECT_EQ(list<float>(*entries, "scores"), (std::vector<float>{0, -9.5F, -1.1F}));
  json tokenizer = unigram();
  tokenizer["model"]["unk_id"] = 3;
  EXPECT_EQ(read(tokenizer, 3).error().message,
            "t.json: model.unk_id: found 3, expected an id below 3, the tokens");
}

TEST(TokenizerJson, WhatIsWrongInUnigramIsNamed) {
  json tokenizer = unigram();
  tokenizer["model"].erase("unk_id");
  EXPECT_EQ(problem(tokenizer),
            "t.json: model.unk_id: found nothing, expected an id below 4, the tokens");
  tokenizer = unigram();
  tokenizer["model"]["vocab"][1] = {"x"};
  EXPECT_EQ(problem(tokenizer),
            "t.json: model.vocab[1]: found an array of 1, expected a text and a score");
  tokenizer = unigram();
  tokenizer["pre_tokenizer"]["prepend_scheme"] = "last";
  EXPECT_EQ(problem(tokenizer),
            "t.json: pre_tokenizer.prepend_scheme: found \"last\", expected \"always\", "
            "\"first\" or \"never\"");
  tokenizer = unigram();
  tokenizer["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  EXPECT_EQ(problem(tokenizer),
            "t.json: pre_tokenizer.type: found \"BertPreTokenizer\", expected Metaspace, "
            "WhitespaceSplit, Digits, Split or Sequence");
  tokenizer = unigram();
  tokenizer["normalizer"]["pattern"]["Regex"] = "x+";
  EXPECT_EQ(problem(tokenizer),
            "t.json: normalizer.pattern.Regex: found \"x+\", expected \" {2,}\", or a String");
  tokenizer["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAA"}};
  EXPECT_EQ(problem(tokenizer),
            "t.json: normalizer.precompiled_charsmap: found \"AAA\", expected base64");
  tokenizer["normalizer"]["precompiled_charsmap"] = "CAAAAA==";
  EXPECT_EQ(
      problem(tokenizer),
      "t.json: normalizer.precompiled_charsmap: found \"CAAAAA==\", expected a table "
      "(precompiled_charsmap: found a trie of 8 bytes, expected a multiple of 4 of at most 0)");
  tokenizer = unigram();
  tokenizer["added_tokens"][0]["single_word"] = true;
  EXPECT_EQ(problem(tokenizer), "t.json: added_tokens[0].single_word: found true, expected false");
}

// GLM-4 has two tokens before a text, for which GGUF has no key.
TEST(TokenizerJson, SeveralTokensMayStandAroundAText) {
  json tokenizer = byte_level();
  tokenizer["post_processor"] = {{"type", "TemplateProcessing"},
                                 {"single",
                                  {{{"SpecialToken", {{"id", "<e>"}}}},
                                   {{"SpecialToken", {{"id", "<call>"}}}},
                                   {{"Sequence", {{"id", "A"}}}}}}};
  const auto entries = read(tokenizer);
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  EXPECT_FALSE(at<bool>(*entries, "add_bos_token"));
  const auto rules = std::ranges::find(*entries, "tokenizer.lockstep.rules", &gguf::Entry::key);
  ASSERT_NE(rules, entries->end());
  const json stored = json::parse(std::get<std::string>(rules->value.value));
  EXPECT_EQ(stored["before"], (json{3, 4}));
  EXPECT_EQ(stored["after"], json::array());
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
  write("config.json", {{"eos_token_id", 4}});
  EXPECT_EQ(ends(), (Ids{4, -1, -1}));
  write("generation_config.json", json::object());
  EXPECT_EQ(ends(), (Ids{4, -1, -1}));
  write("generation_config.json", {{"eos_token_id", {2, 3, 2, 1}}});
  EXPECT_EQ(ends(), (Ids{2, 3, 1}));
  write("tokenizer_config.json", {{"eos_token", "<e>"}});
  EXPECT_EQ(ends(), (Ids{3, 2, 1}));
  write("generation_config.json", {{"eos_token_id", {0, 1, 2, 4, 77}}});  // no room for all
  EXPECT_EQ(ends(), (Ids{3, 0, 1}));
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
  EXPECT_EQ(at<uint32_t>(entries, "eos_token_id"), 3U);
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
