#include "server/worker.h"

#include <memory>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "exec/registry.h"

namespace lockstep::server {
namespace {

// What a job's client is told, as words.
struct News : JobListener {
  void started(const Job&) override { words.push_back("started"); }
  void token(const Job&, const JobToken& token) override {
    words.push_back("token");
    text += token.text;
  }
  void ended(const Job&, const JobEnd& end) override {
    words.push_back(end.problem ? end.problem->code : "end");
    if (end.problem) message = end.problem->message;
  }

  bool over() const {
    return !words.empty() && words.back() != "started" && words.back() != "token";
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

  std::shared_ptr<News> submit(const std::string& id) {
    JobFields fields;
    fields.id = id;
    fields.prompt = "GPU haiku with word seven: ";
    auto job = std::make_shared<Job>();
    job->id = id;
    EXPECT_FALSE(model_->prepare(fields, job->request, job->prompt_text));
    auto news = std::make_shared<News>();
    EXPECT_FALSE(worker_->submit(job));
    job->listener = news;
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
    EXPECT_EQ(bad->words.front(), "started");
    EXPECT_EQ(bad->words.back(), item.code) << bad->message;
    wait_for(next);
    EXPECT_EQ(next->words, good->words) << next->message;
    EXPECT_EQ(next->text, good->text);
  }
}

TEST_F(WorkerTest, WhatAListenerThrowsEndsItsJobOnly) {
  struct Throws : News {
    void token(const Job& job, const JobToken& token) override {
      News::token(job, token);
      if (words.size() == 4) throw std::runtime_error("injected");
    }
  };
  start();
  auto job = std::make_shared<Job>();
  job->id = "bad";
  JobFields fields;
  fields.prompt = "rain";
  ASSERT_FALSE(model_->prepare(fields, job->request, job->prompt_text));
  auto bad = std::make_shared<Throws>();
  ASSERT_FALSE(worker_->submit(job));
  job->listener = bad;
  wait_for(bad);
  EXPECT_EQ(bad->words,
            (std::vector<std::string>{"started", "token", "token", "token", "INTERNAL"}));
  const auto next = submit("next");
  wait_for(next);
  EXPECT_EQ(next->words.back(), "end");
}

}  // namespace
}  // namespace lockstep::server
