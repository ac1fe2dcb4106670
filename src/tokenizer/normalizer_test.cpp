#include "tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include "tokenizer/charsmap.h"
#include "tokenizer/pipeline.h"

namespace lockstep::tokenizer {
namespace {

using nlohmann::json;

std::string normal(const json& part, const std::string& text) {
  const auto read = Normalizer::read(JsonReader(part, "n"));
  EXPECT_TRUE(read.ok()) << read.error().message;
  return read.ok() ? read->apply(text) : "";
}
std::string of_type(const char* type, const std::string& text) {
  return normal({{"type", type}}, text);
}

TEST(Normalizer, FormsOfUnicode) {
  EXPECT_EQ(of_type("NFC", "e\u0301"), "\u00e9");
  EXPECT_EQ(of_type("NFD", "\u00e9"), "e\u0301");
  EXPECT_EQ(of_type("NFC", "\ufb01"), "\ufb01");
  EXPECT_EQ(of_type("NFKC", "\ufb01\uff21"), "fiA");
  EXPECT_EQ(of_type("NFKD", "\u1e9b\u0323"), "s\u0323\u0307");
  EXPECT_EQ(of_type("NFC", "\u1100\u1161\u11a8"), "\uac01");   // Hangul is composed by rule
  EXPECT_EQ(of_type("NFC", "a\u0307\u0323"), "\u1ea1\u0307");  // marks are put in order
  EXPECT_EQ(of_type("NFC", "\u0958"), "\u0915\u093c");         // a composition that is excluded
  EXPECT_EQ(of_type("NFC", std::string("a\0e\xcc\x81", 5)), std::string("a\0\xc3\xa9", 4));
  EXPECT_EQ(of_type("NFC", ""), "");
}

TEST(Normalizer, BytesThatAreNoTextStay) {
  for (const char* type : {"NFC", "NFKD", "Lowercase", "StripAccents", "Nmt", "Strip"})
    EXPECT_EQ(of_type(type, "a\xff\xc3"), "a\xff\xc3") << type;
  EXPECT_EQ(of_type("NFC", "e\xcc\x81\xff\x65\xcc\x81"), "\xc3\xa9\xff\xc3\xa9");
}

TEST(Normalizer, OtherSteps) {
  EXPECT_EQ(of_type("Lowercase", "A\u00c9\u0130\u03a3"), "a\u00e9i\u0307\u03c3");
  EXPECT_EQ(of_type("StripAccents", "e\u0301\u0903x"), "ex");
  EXPECT_EQ(of_type("Nmt", "a\tb\u0001c\u200b\u2581"), "a bc  ");
  EXPECT_EQ(of_type("Strip", "\u3000 a b\t\n"), "a b");
  EXPECT_EQ(normal({{"type", "Strip"}, {"strip_left", false}}, " a "), " a");
  EXPECT_EQ(normal({{"type", "Prepend"}, {"prepend", "_"}}, "a"), "_a");
  EXPECT_EQ(normal({{"type", "Prepend"}, {"prepend", "_"}}, ""), "");
  EXPECT_EQ(normal({{"type", "Replace"}, {"pattern", {{"String", "aa"}}}, {"content", "b"}}, "aaa"),
            "ba");
  EXPECT_EQ(normal({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "_"}},
                   " a   b  "),
            " a_b_");
  const json steps = {{"type", "Sequence"},
                      {"normalizers",
                       {{{"type", "NFD"}},
                        {{"type", "Sequence"}, {"normalizers", {{{"type", "StripAccents"}}}}},
                        {{"type", "Lowercase"}}}}};
  EXPECT_EQ(normal(steps, "\u00c9A"), "ea");
  EXPECT_EQ(normal(nullptr, "\u00c9"), "\u00c9");
}

TEST(Normalizer, StepsMustNotFillTheMemory) {
  json steps = json::array();
  for (int i = 0; i < 4; ++i)
    steps.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaa"}});
  const json part = {{"type", "Sequence"}, {"normalizers", steps}};
  const auto read = Normalizer::read(JsonReader(part, "n"));
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("expected steps that make a text at most 1000 times as long"),
            std::string::npos)
      << read.error().message;
}

// Nor may what is put before a text, since added tokens cut a text into as many as it has letters.
TEST(Normalizer, WhatIsPutBeforeHasALimitToo) {
  const auto problem = [](size_t size) {
    const json part = {{"type", "Prepend"}, {"prepend", std::string(size, 'x')}};
    const auto read = Normalizer::read(JsonReader(part, "n"));
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_EQ(problem(999), "");
  EXPECT_NE(problem(1000).find("at most 1000 times as long"), std::string::npos);
}

TEST(Normalizer, StepsMustNotTakeForever) {
  const auto problem = [](size_t count) {
    const json part = {{"type", "Sequence"},
                       {"normalizers", json::array_t(count, {{"type", "Lowercase"}})}};
    const auto read = Normalizer::read(JsonReader(part, "n"));
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_EQ(problem(64), "");
  EXPECT_EQ(problem(65), "n: document: found an object of 2, expected at most 64 steps");
}

// A trie of one entry, "ab": the root's children begin at 1, so 'a' stands at 1 ^ 'a'.
std::string small_map() {
  std::vector<uint32_t> units(256, 0);
  const uint32_t a = 1U ^ 'a', b = 8U ^ 'b';
  units[0] = 1U << 10U;
  units[a] = ((a ^ 8U) << 10U) | 'a';
  units[b] = ((b ^ 4U) << 10U) | (1U << 8U) | 'b';
  units[4] = 2U | (1U << 31U);
  std::string bytes(reinterpret_cast<const char*>(units.data()), units.size() * 4);
  const auto size = static_cast<uint32_t>(bytes.size());
  return std::string(reinterpret_cast<const char*>(&size), 4) + bytes + std::string("x\0yz\0", 5);
}

TEST(Charsmap, FindsWhatATextBeginsWith) {
  const auto map = Charsmap::read(small_map(), "m");
  ASSERT_TRUE(map.ok()) << map.error().message;
  const auto found = map->shortest("abc");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->length, 2U);
  EXPECT_EQ(found->becomes, "yz");
  EXPECT_TRUE(map->longest("ab"));
  EXPECT_FALSE(map->longest("a"));
  EXPECT_FALSE(map->longest("b"));
  EXPECT_FALSE(map->longest(""));
}

TEST(Charsmap, BadBytesAreErrorsOrNoEntries) {
  EXPECT_EQ(Charsmap::read("abc", "m").error().message,
            "m: found 3 bytes, expected at least the 4 of the trie's length");
  EXPECT_EQ(Charsmap::read(std::string("\x08\0\0\0\0\0\0\0", 8), "m").error().message,
            "m: found a trie of 8 bytes, expected a multiple of 4 of at most 4");
  EXPECT_FALSE(Charsmap::read(std::string("\0\0\0\0\xff", 5), "m").ok());
  EXPECT_TRUE(Charsmap::read(std::string(4, '\0') + std::string(1000, 'x'), "m").ok());
  EXPECT_EQ(Charsmap::read(std::string(4, '\0') + std::string(1001, 'x'), "m").error().message,
            "m: found a text of 1001 bytes, expected at most 1000");
  EXPECT_FALSE(Charsmap::read(std::string(4, '\0'), "m")->shortest("a"));
  // Every byte of a whole map, damaged in turn: no entry lies outside.
  const std::string good = small_map();
  for (size_t at = 4; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x7f);
    const auto map = Charsmap::read(bad, "m");
    if (map.ok()) map->longest("abcabc");
  }
}

std::vector<std::string> cuts(const json& pre, const std::string& text) {
  const json root = {{"pre_tokenizer", pre}};
  const auto rules = read_rules(JsonReader(root, "r"));
  EXPECT_TRUE(rules.ok()) << rules.error().message;
  std::deque<std::string> made;
  std::vector<std::string> out;
  for (const Fragment& fragment : Pipeline(*rules, 9).run(text, true, made))
    out.emplace_back(fragment.text);
  return out;
}

TEST(Pipeline, CutsAsTheStepsSay) {
  using Texts = std::vector<std::string>;
  const auto split = [](const char* behaviour) {
    return json{{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behaviour}};
  };
  EXPECT_EQ(cuts(split("Removed"), "a--b-"), (Texts{"a", "b"}));
  EXPECT_EQ(cuts(split("Isolated"), "a--b-"), (Texts{"a", "-", "-", "b", "-"}));
  EXPECT_EQ(cuts(split("Contiguous"), "a--b-"), (Texts{"a", "--", "b", "-"}));
  EXPECT_EQ(cuts(split("MergedWithPrevious"), "a--b-"), (Texts{"a-", "-", "b-"}));
  EXPECT_EQ(cuts(split("MergedWithNext"), "a--b-"), (Texts{"a", "-", "-b", "-"}));
  EXPECT_EQ(cuts({{"type", "Digits"}, {"individual_digits", true}}, "a12\u00bd"),
            (Texts{"a", "1", "2", "\u00bd"}));
  EXPECT_EQ(cuts({{"type", "Digits"}}, "a12b"), (Texts{"a", "12", "b"}));
  EXPECT_EQ(cuts({{"type", "WhitespaceSplit"}}, "\u3000a b\n"), (Texts{"a", "b"}));
  EXPECT_EQ(cuts({{"type", "Metaspace"}}, "a  b"), (Texts{"\u2581a", "\u2581", "\u2581b"}));
  EXPECT_EQ(cuts({{"type", "Metaspace"}, {"add_prefix_space", false}, {"split", false}}, "a b"),
            (Texts{"a\u2581b"}));
  EXPECT_EQ(cuts({{"type", "Metaspace"}}, ""), Texts{});
}

std::string problem_of_rules(const json& root) {
  const auto rules = read_rules(JsonReader(root, "r"));
  return rules.ok() ? "" : rules.error().message;
}

TEST(Pipeline, HasALimitOfSteps) {
  const auto problem = [](size_t count) {
    const json steps = json::array_t(count, {{"type", "WhitespaceSplit"}});
    return problem_of_rules({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}}});
  };
  EXPECT_EQ(problem(64), "");
  EXPECT_EQ(problem(65), "r: pre_tokenizer: found an object of 2, expected at most 64 steps");
}

// What is searched for in every text is what the normalizer made of a token.
TEST(Pipeline, NormalizedTokensHaveALimit) {
  const auto problem = [](size_t letters) {
    return problem_of_rules(
        {{"normalizer",
          {{"type", "Replace"},
           {"pattern", {{"String", "a"}}},
           {"content", std::string(512, 'b')}}},
         {"added_tokens",
          {{{"id", 0}, {"content", std::string(letters, 'a')}, {"normalized", true}}}}});
  };
  EXPECT_EQ(problem(8), "");
  EXPECT_EQ(problem(9),
            "r: added_tokens[0].content: found \"aaaaaaaaa\", expected a text of which the "
            "normalizer leaves 1 to 4096 bytes (it leaves 4608)");
}

// Tokens of white space that take all white space around them: each stretch is walked over once.
TEST(Pipeline, WhiteSpaceIsTakenInOneWalk) {
  constexpr size_t kSpaces = 400'000;
  for (const bool before : {false, true}) {
    const json root = {{"added_tokens",
                        {{{"id", 3},
                          {"content", " "},
                          {"normalized", false},
                          {"lstrip", before},
                          {"rstrip", true}}}}};
    const auto rules = read_rules(JsonReader(root, "r"));
    ASSERT_TRUE(rules.ok());
    std::deque<std::string> made;
    const std::string text = "a" + std::string(kSpaces, ' ') + "b";
    const std::vector<Fragment> found = Pipeline(*rules, 9).run(text, true, made);
    // Without `lstrip` each space takes the rest back from the one before.
    ASSERT_EQ(found.size(), before ? 3U : kSpaces + 2);
    EXPECT_EQ(found[0].text, "a");
    EXPECT_EQ(found[1].token, 3);
    EXPECT_EQ(found[1].text.size(), kSpaces);
    EXPECT_EQ(found.back().text, "b");
  }
}

}  // namespace
}  // namespace lockstep::tokenizer
