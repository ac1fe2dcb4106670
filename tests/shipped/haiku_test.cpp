// The shipped models do what they are for, on the reference executor: a haiku that has the word
// asked for, three lines, and scans 5-7-5 by the generator's table of syllables.
#include <algorithm>
#include <fstream>
#include <map>
#include <regex>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "engine/session.h"

namespace lockstep {
namespace {

constexpr const char* kFiles[] = {
    "haiku-gpt2-f32",     "haiku-granite-f16", "haiku-granite-q4_k_m", "haiku-llama-f16",
    "haiku-llama-q4_k_m", "haiku-phi3-f16",    "haiku-phi3-q4_k_m",    "haiku-qwen2-f16",
    "haiku-qwen2-q4_k_m", "haiku-moe-f16",     "haiku-moe-q4_k_m",
};

std::string number_word(int number) {
  constexpr const char* kSmall[] = {"zero",    "one",     "two",       "three",    "four",
                                    "five",    "six",     "seven",     "eight",    "nine",
                                    "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                    "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  constexpr const char* kTens[] = {"", "", "twenty", "thirty", "forty", "fifty"};
  if (number < 20) return kSmall[number];
  const std::string tens = kTens[number / 10];
  return number % 10 == 0 ? tens : tens + "-" + kSmall[number % 10];
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::map<std::string, int> read_syllables() {
  std::map<std::string, int> table;
  std::ifstream in(LOCKSTEP_MODELS "/syllables.tsv");
  std::string word;
  int count = 0;
  while (in >> word >> count) table[word] = count;
  return table;
}

std::vector<std::string> words(const std::string& text) {
  static const std::regex kWord("[A-Za-z][A-Za-z'-]*");
  std::vector<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), kWord), end; it != end; ++it) {
    std::string word = lower(it->str());
    while (word.ends_with('\'')) word.pop_back();
    out.push_back(word);
  }
  return out;
}

// The lines of an answer without the blank ones at either end.
std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) out.push_back(line);
  return out;
}

bool scans(const std::string& text, const std::map<std::string, int>& table) {
  std::vector<int> counts;
  for (const std::string& line : lines(text)) {
    int count = 0;
    for (const std::string& word : words(line)) {
      const auto found = table.find(word);
      if (found == table.end()) return false;
      count += found->second;
    }
    counts.push_back(count);
  }
  return counts == std::vector<int>{5, 7, 5};
}

struct Shares {
  double word = 0;
  double three_lines = 0;
  double scan = 0;
};

class Haiku : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    table_ = read_syllables();
    ASSERT_GT(table_.size(), 1000u);
    auto model = model::Model::load(std::string(LOCKSTEP_MODELS "/") + GetParam() + ".gguf");
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::make_unique<model::Model>(*std::move(model));
    auto tokenizer = tokenizer::Tokenizer::load(model_->file());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    tokenizer_ = *std::move(tokenizer);
    const auto device = exec::find_device("reference");
    auto session = engine::Session::create(*model_, tokenizer_.get(), **device, {}, 96);
    ASSERT_TRUE(session.ok()) << session.error().message;
    session_ = std::make_unique<engine::Session>(*std::move(session));
  }

  std::string answer(const std::string& prompt, double temperature, uint64_t seed) {
    engine::Request request;
    request.prompt = tokenizer_->encode(prompt);
    request.max_tokens = 64;
    request.sampling.temperature = temperature;
    request.sampling.seed = seed;
    const auto outcome = session_->generate(request, nullptr);
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    return outcome.ok() ? outcome->text : "";
  }

  Shares shares(double temperature) {
    Shares out;
    const int step = runs_slow_tests() ? 1 : 5;
    const double one = step / 60.0;
    for (int number = 0; number < 60; number += step) {
      const std::string word = number_word(number);
      const std::string text =
          answer("GPU haiku with word " + word + ": ", temperature, static_cast<uint64_t>(number));
      const auto found = words(text);
      out.word += std::ranges::count(found, word) > 0 ? one : 0;
      out.three_lines += lines(text).size() == 3 ? one : 0;
      out.scan += scans(text, table_) ? one : 0;
    }
    return out;
  }

  std::map<std::string, int> table_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<engine::Session> session_;
};

TEST_P(Haiku, HasTheWordAndScansGreedily) {
  const Shares greedy = shares(0);
  EXPECT_GE(greedy.word, 0.95);
  EXPECT_EQ(std::lround(greedy.three_lines * 60), 60);
  EXPECT_GE(greedy.scan, 0.9);
}

TEST_P(Haiku, HasTheWordAndScansAtTemperature) {
  const Shares warm = shares(0.8);
  EXPECT_GE(warm.word, 0.8);
  EXPECT_GE(warm.three_lines, 0.8);
  EXPECT_GE(warm.scan, 0.8);
}

TEST_P(Haiku, SeedsDecide) {
  const std::string prompt = "Write a haiku about rain";
  EXPECT_EQ(answer(prompt, 1, 1), answer(prompt, 1, 1));
  EXPECT_NE(answer(prompt, 1, 1), answer(prompt, 1, 2));
  EXPECT_TRUE(scans(answer(prompt, 0, 0), table_)) << answer(prompt, 0, 0);
}

INSTANTIATE_TEST_SUITE_P(Shipped, Haiku, ::testing::ValuesIn(kFiles), [](const auto& parameter) {
  std::string name = parameter.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace lockstep
