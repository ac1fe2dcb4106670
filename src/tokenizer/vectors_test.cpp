// The real vocabularies and expected ids that lie in shared/vocabs.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::tokenizer {
namespace {

std::filesystem::path vocabs() {
  const char* shared = std::getenv("LOCKSTEP_SHARED");
  return shared ? std::filesystem::path(shared) / "vocabs" : std::filesystem::path();
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

class Vectors : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto path = vocabs() / (std::string(GetParam()) + ".gguf");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is missing";
    auto file = gguf::File::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    auto loaded = Tokenizer::load(*file);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokens_ = std::move(*loaded);  // lives on without the file
  }
  std::unique_ptr<Tokenizer> tokens_;
};

TEST_P(Vectors, IdsAreTheExpectedOnes) {
  const auto base = vocabs() / GetParam();
  const std::string input = contents(base.string() + ".inp");
  std::istringstream expected(contents(base.string() + ".out"));
  constexpr std::string_view kBetween = "\n__ggml_vocab_test__\n";
  int compared = 0;
  for (size_t at = 0; at < input.size(); ++compared) {
    const size_t end = input.find(kBetween, at);
    const std::string text = input.substr(at, end == std::string::npos ? end : end - at);
    std::string line;
    ASSERT_TRUE(std::getline(expected, line));
    std::istringstream numbers(line);
    const std::vector<TokenId> want{std::istream_iterator<TokenId>(numbers), {}};
    EXPECT_EQ(tokens_->encode(text, {.add_special = false, .parse_special = false}), want) << text;
    EXPECT_EQ(tokens_->decode(want), text);
    at = end == std::string::npos ? input.size() : end + kBetween.size();
  }
  EXPECT_EQ(compared, 46);
}

TEST_P(Vectors, RandomBytesComeBack) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::string text;
    const int64_t size = random.below(300);
    // SentencePiece takes a stray byte together with what follows, so its space would not come
    // back.
    const int64_t highest = seed % 2 == 0 && !tokens_->adds_space() ? 256 : 128;
    for (int64_t i = 0; i < size; ++i) text += static_cast<char>(random.below(highest));
    const auto ids = tokens_->encode(text, {.add_special = false, .parse_special = false});
    if (!text.empty()) {
      EXPECT_EQ(tokens_->decode(ids), text);
    }
  }
}

TEST_P(Vectors, EndsAndBegins) {
  const std::string name = GetParam();
  const auto ids = tokens_->encode("hi");
  ASSERT_FALSE(ids.empty());
  const bool with_bos = name == "llama-bpe" || name == "llama-spm" || name == "phi-3";
  EXPECT_EQ(tokens_->adds_bos(), with_bos);
  EXPECT_EQ(ids[0] == *tokens_->bos(), with_bos);
  EXPECT_TRUE(tokens_->ends_generation(*tokens_->eos()));
  int64_t ends = 0;
  for (TokenId id = 0; id < tokens_->size(); ++id) ends += tokens_->ends_generation(id);
  const std::map<std::string, int64_t> want = {
      {"gpt-2", 1}, {"llama-bpe", 2}, {"llama-spm", 1}, {"phi-3", 3}, {"qwen2", 6}};
  EXPECT_EQ(ends, want.at(name));
}

INSTANTIATE_TEST_SUITE_P(All, Vectors,
                         testing::Values("gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2"));

}  // namespace
}  // namespace lockstep::tokenizer
