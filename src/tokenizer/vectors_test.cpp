// Vocabularies in files: our own small ones (tests/fixtures/vocabs), and where they are at hand
// real ones with expected ids (shared/vocabs). tests/tokenizer has the expected ids of our own.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::tokenizer {
namespace {

std::filesystem::path real_vocabs() {
  const char* shared = std::getenv("LOCKSTEP_SHARED");
  return shared ? std::filesystem::path(shared) / "vocabs" : std::filesystem::path();
}

struct StoredVocab {
  const char* name;
  bool own;
  bool adds_bos;
  int64_t ends;  // tokens that end generation

  std::filesystem::path folder() const {
    return own ? std::filesystem::path(LOCKSTEP_FIXTURES) / "vocabs" : real_vocabs();
  }
};

void PrintTo(const StoredVocab& file, std::ostream* out) {
  *out << file.name;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

class Vocabularies : public testing::TestWithParam<StoredVocab> {
 protected:
  void SetUp() override {
    const auto path = GetParam().folder() / (std::string(GetParam().name) + ".gguf");
    if (!GetParam().own && !std::filesystem::exists(path)) GTEST_SKIP() << path << " is missing";
    auto file = gguf::File::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    auto loaded = Tokenizer::load(*file);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokens_ = std::move(*loaded);  // lives on without the file
  }
  std::unique_ptr<Tokenizer> tokens_;
};

class Vectors : public Vocabularies {};

TEST_P(Vectors, IdsAreTheExpectedOnes) {
  const auto base = GetParam().folder() / GetParam().name;
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

TEST_P(Vocabularies, RandomBytesComeBack) {
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

TEST_P(Vocabularies, EndsAndBegins) {
  const auto ids = tokens_->encode("hi");
  ASSERT_FALSE(ids.empty());
  EXPECT_EQ(tokens_->adds_bos(), GetParam().adds_bos);
  EXPECT_EQ(tokens_->bos() == ids[0], GetParam().adds_bos);
  EXPECT_TRUE(tokens_->ends_generation(*tokens_->eos()));
  int64_t ends = 0;
  for (TokenId id = 0; id < tokens_->size(); ++id) ends += tokens_->ends_generation(id);
  EXPECT_EQ(ends, GetParam().ends);
}

constexpr StoredVocab kOwnVocabs[] = {
    {"gpt-2", true, false, 1}, {"llama-bpe", true, true, 2}, {"llama-spm", true, true, 1},
    {"phi-3", true, true, 3},  {"qwen2", true, false, 2},    {"smollm", true, false, 2},
};
constexpr StoredVocab kRealVocabs[] = {
    {"gpt-2", false, false, 1}, {"llama-bpe", false, true, 2}, {"llama-spm", false, true, 1},
    {"phi-3", false, true, 3},  {"qwen2", false, false, 6},
};
INSTANTIATE_TEST_SUITE_P(Own, Vocabularies, testing::ValuesIn(kOwnVocabs));
INSTANTIATE_TEST_SUITE_P(Real, Vocabularies, testing::ValuesIn(kRealVocabs));
INSTANTIATE_TEST_SUITE_P(Real, Vectors, testing::ValuesIn(kRealVocabs));

}  // namespace
}  // namespace lockstep::tokenizer
