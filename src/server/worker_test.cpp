#include "server/worker.h"

#include <future>
#include <memory>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "exec/registry.h"

namespace lockstep::server {
namespace {

// What a job's client is told, as words.
struct News : JobListener {
  void accepted(const Job&) override { words.push_back("accepted"); }
  void refused(const ApiError& problem) override {
    words.push_back("refused " + problem.field);
    message = problem.message;
  }
  void started(const Job&) override { words.push_back("started"); }
  std::optional<ApiError> token(const Job&, const JobToken& token) override {
    words.push_back("token");
    text += token.text;
    return std::nullopt;
  }
  void ended(const Job&, const JobEnd& end) override {
    words.push_back(end.problem ? end.problem->code : "end");
    if (end.problem) message = end.problem->message;
  }

  bool over() const {
    return !words.empty() && words.back() != "accepted" && words.back() != "started" &&
           words.back() != "token";
  }

  std::vector<std::string> words;
  std::string text, message;
};

class WorkerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto loaded = ServedModel::load(LOCKSTEP_MODELS "/haiku-llama-q4_k_m.gguf",
                                    **exec::find_device("cpu"), {.threads = 1}, 0);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = std::move(*loaded);
  }
  static void TearDownTestSuite() { model_ = nullptr; }

  void start(std::function<void(const Job&, int64_t)> probe = {}) {
    WorkerOptions options;
    options.probe = std::move(probe);
    worker_ = nullptr;
    network_ = std::make_unique<boost::asio::io_context>();
    worker_ = std::make_unique<Worker>(*network_, *model_, options, metrics_);
  }

  std::shared_ptr<News> submit(const std::string& id,
                               std::shared_ptr<News> news = std::make_shared<News>(),
                               const std::string& prompt = "GPU haiku with word seven: ") {
    auto job = std::make_shared<Job>();
    job->id = id;
    job->fields.prompt = prompt;
    job->listener = news;
    EXPECT_FALSE(worker_->submit(job));
    return news;
  }

  // What the network thread does until the job has ended.
  void wait_for(const std::shared_ptr<News>& news) {
    const auto busy = boost::asio::make_work_guard(*network_);
    network_->restart();  // it stops where it has nothing to do
    while (!news->over()) network_->run_one();
  }

  static std::unique_ptr<ServedModel> model_;
  Metrics metrics_;
  std::unique_ptr<boost::asio::io_context> network_;
  std::unique_ptr<Worker> worker_;
};

std::unique_ptr<ServedModel> WorkerTest::model_;

TEST_F(WorkerTest, WhatAJobThrowsEndsThatJobOnly) {
  const auto at = [](const char* id, int64_t tokens, auto what) {
    return [=](const Job& job, int64_t count) {
      if (job.id == id && count == tokens) throw what;
    };
  };
  const struct {
    std::function<void(const Job&, int64_t)> probe;
    std::string code;
  } cases[] = {
      {at("bad", 0, std::runtime_error("injected")), "INTERNAL"},
      {at("bad", 5, std::runtime_error("injected")), "INTERNAL"},
      {at("bad", 1, 7), "INTERNAL"},  // not even an exception
      {at("bad", 2, std::bad_alloc()), "OUT_OF_MEMORY"},
  };
  start();
  const auto good = submit("good");
  wait_for(good);
  ASSERT_EQ(good->words.back(), "end");
  for (const auto& item : cases) {
    start(item.probe);
    const auto bad = submit("bad");
    const auto next = submit("next");
    wait_for(bad);
    EXPECT_EQ(bad->words.front(), "accepted");
    EXPECT_EQ(bad->words.back(), item.code) << bad->message;
    wait_for(next);
    EXPECT_EQ(next->words, good->words) << next->message;
    EXPECT_EQ(next->text, good->text);
  }
}

// A template or a text that takes long keeps only the jobs behind it waiting.
TEST_F(WorkerTest, TheNetworkThreadDoesNotWaitForPreparing) {
  std::promise<void> go_on;
  const auto gate = go_on.get_future().share();
  start([&](const Job& job, int64_t at) {
    if (job.id == "long" && at == -1) gate.wait();
  });
  const auto slow = submit("long");
  const auto bad = submit("bad", std::make_shared<News>(), std::string(100'000, 'x'));
  const auto next = submit("next");
  const auto cancelled = submit("cancelled");
  EXPECT_EQ(worker_->queue_length(), 4);
  worker_->cancel("cancelled");
  EXPECT_EQ(cancelled->words, (std::vector<std::string>{"accepted", "started", "CANCELLED"}));
  EXPECT_EQ(network_->poll(), 0u);  // and still nobody has heard of the others
  for (const auto& waiting : {slow, bad, next}) EXPECT_TRUE(waiting->words.empty());
  go_on.set_value();
  wait_for(bad);
  EXPECT_EQ(bad->words, std::vector<std::string>{"refused prompt"});
  EXPECT_NE(bad->message.find("256"), std::string::npos) << bad->message;  // the context
  EXPECT_EQ(slow->words.front(), "accepted");  // in the order in which they came
  wait_for(next);
  EXPECT_EQ(slow->words.back(), "end");
  EXPECT_EQ(next->words, slow->words);
}

TEST_F(WorkerTest, JobsThatAreCancelledWhileTheyArePrepared) {
  std::promise<void> go_on;
  const auto gate = go_on.get_future().share();
  start([&](const Job& job, int64_t at) {
    if (job.id == "long" && at == -1) gate.wait();
    if (job.id == "throws" && at == -1) throw std::runtime_error("injected");
  });
  const auto slow = submit("long");
  worker_->cancel("long");
  EXPECT_EQ(slow->words, (std::vector<std::string>{"accepted", "started", "CANCELLED"}));
  EXPECT_EQ(worker_->queue_length(), 0);
  const auto again = submit("long");  // its id is free
  const auto throws = submit("throws");
  const auto next = submit("next");
  go_on.set_value();
  wait_for(next);
  EXPECT_EQ(slow->words.size(), 3u);
  EXPECT_EQ(throws->words, std::vector<std::string>{"refused "});
  EXPECT_EQ(again->words.back(), "end");
  EXPECT_EQ(next->words.back(), "end");
}

TEST_F(WorkerTest, WhatAListenerThrowsEndsItsJobOnly) {
  struct Throws : News {
    std::optional<ApiError> token(const Job& job, const JobToken& token) override {
      News::token(job, token);
      if (words.size() == 5) throw std::runtime_error("injected");
      return std::nullopt;
    }
  };
  start();
  const auto bad = submit("bad", std::make_shared<Throws>());
  wait_for(bad);
  EXPECT_EQ(bad->words, (std::vector<std::string>{"accepted", "started", "token", "token", "token",
                                                  "INTERNAL"}));
  const auto next = submit("next");
  wait_for(next);
  EXPECT_EQ(next->words.back(), "end");
}

}  // namespace
}  // namespace lockstep::server
