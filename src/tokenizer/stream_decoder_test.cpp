#include <gtest/gtest.h>

#include "base/random.h"
#include "tokenizer/test_vocabs.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace lockstep::tokenizer {
namespace {

// Ids of small_byte_pairs() 0 to 255 are the bytes themselves; pieces' bytes begin at 3.
std::unique_ptr<Tokenizer> bytes() {
  return std::move(*Tokenizer::create(small_byte_pairs()));
}
std::unique_ptr<Tokenizer> pieces() {
  return std::move(*Tokenizer::create(small_sentence_pieces()));
}

TEST(StreamDecoder, ShowsWholeCharactersOnly) {
  const auto tokens = bytes();
  StreamDecoder stream(*tokens);
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(0xf0), "");
  EXPECT_EQ(stream.push(0x9f), "");
  EXPECT_EQ(stream.push(0xa6), "");
  EXPECT_EQ(stream.push(0x99), "🦙");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, ReplacesWhatCanNeverBecomeACharacter) {
  const auto tokens = bytes();
  StreamDecoder stream(*tokens);
  EXPECT_EQ(stream.push(0x80), "\uFFFD");
  EXPECT_EQ(stream.push(0xff), "\uFFFD");
  EXPECT_EQ(stream.push(0xe2), "");
  EXPECT_EQ(stream.push('b'),
            "\uFFFD"
            "b");
  EXPECT_EQ(stream.push(0xed), "");
  EXPECT_EQ(stream.push(0xa0), "\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(stream.push(0xc3), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, RemovesTheSpacePrefixOnce) {
  const auto tokens = pieces();
  StreamDecoder stream(*tokens);
  std::string text;
  for (const TokenId id : tokens->encode("hello hello")) text += stream.push(id);
  EXPECT_EQ(text + stream.finish(), "hello hello");
}

TEST(StreamDecoder, JoinsByteFallback) {
  const auto tokens = pieces();
  StreamDecoder stream(*tokens);
  EXPECT_EQ(stream.push(1), "");  // <s>
  EXPECT_EQ(stream.push(3 + 0xe5), "");
  EXPECT_EQ(stream.push(3 + 0xa5), "");
  EXPECT_EQ(stream.push(3 + 0xbd), "好");
}

TEST(StreamDecoder, GivesTheTextOfAnyValidInput) {
  const auto tokens = bytes();
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::string text;
    const char* parts[] = {"hello", " world", "é", "好", "🦙", "\n", "\uFFFD", "aaaaa"};
    for (int64_t i = random.below(40); i > 0; --i) text += parts[random.below(8)];
    StreamDecoder stream(*tokens);
    std::string shown;
    for (const TokenId id : tokens->encode(text)) shown += stream.push(id);
    EXPECT_EQ(shown + stream.finish(), text);
  }
}

TEST(StreamDecoder, IsAlwaysUtf8) {
  const auto tokens = bytes();
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    StreamDecoder stream(*tokens);
    for (int i = 0; i < 100; ++i) {
      std::string shown = stream.push(static_cast<TokenId>(random.below(tokens->size())));
      if (i == 99) shown += stream.finish();
      for (std::string_view rest = shown; !rest.empty();) {
        const Utf8Step step = utf8_step(rest);
        ASSERT_EQ(step.state, Utf8::kWhole);
        rest.remove_prefix(step.length);
      }
    }
  }
}

TEST(Utf8, KnowsTheEdges) {
  const auto is = [](std::string_view text, Utf8 state, size_t length) {
    const Utf8Step step = utf8_step(text);
    return step.state == state && step.length == length;
  };
  EXPECT_TRUE(is(std::string_view("\0", 1), Utf8::kWhole, 1));
  EXPECT_TRUE(is("\xc2\x80", Utf8::kWhole, 2));
  EXPECT_TRUE(is("\xc1\x80", Utf8::kInvalid, 1));
  EXPECT_TRUE(is("\xe0\x9f\x80", Utf8::kInvalid, 1));
  EXPECT_TRUE(is("\xe0\xa0\x80", Utf8::kWhole, 3));
  EXPECT_TRUE(is("\xed\xa0\x80", Utf8::kInvalid, 1));
  EXPECT_TRUE(is("\xef\xbf\xbf", Utf8::kWhole, 3));
  EXPECT_TRUE(is("\xf0\x8f\xbf\xbf", Utf8::kInvalid, 1));
  EXPECT_TRUE(is("\xf4\x8f\xbf\xbf", Utf8::kWhole, 4));
  EXPECT_TRUE(is("\xf4\x90\x80\x80", Utf8::kInvalid, 1));
  EXPECT_TRUE(is("\xf0\x9f\xa6", Utf8::kCut, 3));
  EXPECT_TRUE(is("\xf0\x9f\x41", Utf8::kInvalid, 2));
}

}  // namespace
}  // namespace lockstep::tokenizer
