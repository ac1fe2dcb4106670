// A session that serves one prompt after another: what it keeps of the last one changes no bit of
// the next, and a generation can be cancelled at any moment.
#include "engine/session.h"

#include <random>
#include <thread>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr const char* kSessionFiles[] = {"haiku-gpt2-f32",     "haiku-granite-q4_k_m",
                                         "haiku-llama-q4_k_m", "haiku-phi3-q4_k_m",
                                         "haiku-qwen2-q4_k_m", "haiku-moe-q4_k_m"};

struct Answer {
  std::vector<engine::TokenId> tokens;
  std::vector<double> logprobs;  // all of the vocabulary, token by token
  int64_t reused = 0;

  bool operator==(const Answer& other) const {
    return tokens == other.tokens && logprobs == other.logprobs;
  }
};

class SessionOf {
 public:
  SessionOf(const std::string& file, const char* device, int threads = 2) {
    auto model = model::Model::load(std::string(LOCKSTEP_MODELS "/") + file + ".gguf");
    EXPECT_TRUE(model.ok());
    model_ = std::make_unique<model::Model>(*std::move(model));
    const auto found = exec::find_device(device);
    auto session = engine::Session::create(*model_, nullptr, **found, {.threads = threads}, 256);
    EXPECT_TRUE(session.ok()) << session.error().message;
    session_ = std::make_unique<engine::Session>(*std::move(session));
  }

  Answer answer(const std::vector<engine::TokenId>& prompt, int64_t tokens,
                const std::atomic<bool>* cancel = nullptr, op::Observer* observer = nullptr) {
    engine::Request request;
    request.prompt = prompt;
    request.max_tokens = tokens;
    request.logprobs = vocabulary();
    request.observer = observer;
    Answer out;
    const auto outcome = session_->generate(
        request,
        [&](const engine::Emitted& token) {
          out.logprobs.push_back(token.logprobs->chosen);
          for (const auto& top : token.logprobs->top) out.logprobs.push_back(top.value);
        },
        cancel);
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    out.tokens = outcome->tokens;
    out.reused = outcome->reused;
    return out;
  }

  int64_t vocabulary() const { return session_->program().vocabulary; }

 private:
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<engine::Session> session_;
};

class Nobody : public op::Observer {
 public:
  void begin_step(int64_t first_position, int64_t) override {
    if (first < 0) first = first_position;
  }
  bool wants(op::ValueId) const override { return false; }
  void see(op::ValueId, const View&) override {}
  int64_t first = -1;
};

TEST(SessionReuse, ChangesNoBit) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const char* device : {"cpu", "reference"})
    for (const char* file : kSessionFiles) {
      SCOPED_TRACE(fmt::format("{} on {}", file, device));
      SessionOf cold(file, device), warm(file, device);
      const auto below = [&](int64_t n) {
        return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
      };
      std::vector<engine::TokenId> last;
      for (int round = 0; round < 4; ++round) {
        // Some of the last conversation, and something new.
        std::vector<engine::TokenId> prompt(last.begin(),
                                            last.begin() + below(std::ssize(last) + 1));
        const int64_t shared = std::ssize(prompt);
        for (int64_t n = below(20) + (prompt.empty() ? 1 : 0); n > 0; --n)
          prompt.push_back(static_cast<engine::TokenId>(below(cold.vocabulary())));
        const int64_t count = 1 + below(8);
        const Answer again = warm.answer(prompt, count);
        EXPECT_GE(again.reused, std::min(shared, std::ssize(prompt) - 1) - 1);
        const std::vector<engine::TokenId> other = {static_cast<engine::TokenId>(
            (prompt[0] + 1) % static_cast<int32_t>(cold.vocabulary()))};
        cold.answer(other, 1);
        const Answer fresh = cold.answer(prompt, count);
        EXPECT_EQ(fresh.reused, 0);
        ASSERT_TRUE(again == fresh);
        last = prompt;
        last.insert(last.end(), again.tokens.begin(), again.tokens.end());
        if (last.size() > 150) last.resize(150);
      }
      Nobody observer;  // sees every position
      EXPECT_EQ(warm.answer(last, 1, nullptr, &observer).reused, 0);
      EXPECT_EQ(observer.first, 0);
    }
}

TEST(SessionCancel, AtAnyMoment) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const int threads : {1, 2, 3}) {
    SessionOf session("haiku-llama-q4_k_m", "cpu", threads);
    std::vector<engine::TokenId> prompt(200);
    for (auto& id : prompt) id = static_cast<engine::TokenId>(random() % 600);
    const Answer whole = session.answer(prompt, 50);
    int cancelled = 0;
    for (int i = 0; i < 60; ++i) {
      std::atomic<bool> cancel = false;
      // Both ways around: the prompt is evaluated anew, or what was left of it is used.
      if (i % 2 == 0) session.answer({1}, 1);
      const auto delay = std::chrono::microseconds(random() % 8000);
      std::jthread other([&] {
        std::this_thread::sleep_for(delay);
        cancel = true;
      });
      const Answer part = session.answer(prompt, 50, &cancel);
      cancelled += part.tokens.size() < 50;
      ASSERT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), whole.tokens.begin()));
    }
    EXPECT_TRUE(session.answer(prompt, 50) == whole);
    EXPECT_GT(cancelled, 0);
  }
}

}  // namespace
}  // namespace lockstep
