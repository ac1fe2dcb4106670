#include "server/answers.h"

#include <gtest/gtest.h>

namespace lockstep::server {
namespace {

void keep(Answers& answers, const std::string& id, size_t prompt, size_t tokens) {
  Job job;
  job.id = id;
  job.request.prompt.assign(prompt, 7);
  job.told.assign(tokens, 5);
  answers.keep(job, false);
}

TEST(AnswersTest, WhatGivesTheAnswerAgain) {
  Answers answers;
  Job job;
  job.id = "one";
  job.prompt_text = "text";
  job.request.prompt = {1, 2, 3};
  job.request.sampling.temperature = 0.5;
  job.request.sampling.seed = 11;
  job.request.stops = {"stop"};
  job.request.ignore_end = true;
  job.request.max_tokens = 1000;
  job.request.logprobs = 5;
  job.told = {8, 9};
  job.told_logprobs = {-0.25, -3};
  answers.keep(job, false);
  const auto answer = answers.find("one");
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->prompt_text, "text");
  EXPECT_EQ(answer->tokens, job.told);
  EXPECT_EQ(answer->logprobs, job.told_logprobs);
  EXPECT_EQ(answer->fields.prompt_tokens, job.request.prompt);
  EXPECT_EQ(answer->fields.sampling.temperature, 0.5);
  EXPECT_EQ(answer->fields.sampling.seed, 11u);
  EXPECT_TRUE(answer->fields.seeded);
  EXPECT_EQ(answer->fields.stops, job.request.stops);
  EXPECT_TRUE(answer->fields.ignore_end);
  EXPECT_EQ(answer->fields.max_tokens, 2);
  EXPECT_EQ(answer->fields.logprobs, 0);
  EXPECT_EQ(answer->positions(), 5);
  // The end-of-text token is chosen too.
  job.told_logprobs.clear();
  answers.keep(job, true);
  EXPECT_EQ(answers.find("one")->fields.max_tokens, 3);
  EXPECT_EQ(answers.find("one")->fields.logprobs, -1);
  EXPECT_EQ(answer->fields.max_tokens, 2);  // who has the old one keeps it
}

TEST(AnswersTest, OnlyTheLastOnes) {
  Answers answers(3);
  for (const char* id : {"a", "b", "c", "b", "d"}) keep(answers, id, 1, 1);
  EXPECT_EQ(answers.find("a"), nullptr);
  for (const char* id : {"b", "c", "d"}) EXPECT_NE(answers.find(id), nullptr) << id;
  keep(answers, "e", 1, 1);
  EXPECT_EQ(answers.find("c"), nullptr);  // b came again after it
  EXPECT_NE(answers.find("b"), nullptr);
  keep(answers, "empty", 5, 0);
  EXPECT_EQ(answers.find("empty"), nullptr);
  EXPECT_EQ(answers.find(""), nullptr);
}

TEST(AnswersTest, OnlySoManyBytes) {
  Answers answers(1000, 100'000);
  for (int i = 0; i < 30; ++i) keep(answers, fmt::format("{}", i), 1000, 255);
  EXPECT_EQ(answers.find("0"), nullptr);
  EXPECT_NE(answers.find("29"), nullptr);
  int64_t bytes = 0;
  for (int i = 0; i < 30; ++i)
    if (const auto answer = answers.find(fmt::format("{}", i))) bytes += answer->bytes();
  EXPECT_GT(bytes, 80'000);
  EXPECT_LE(bytes, 100'000);
  keep(answers, "huge", 100'000, 1);
  EXPECT_EQ(answers.find("huge"), nullptr);
  EXPECT_EQ(answers.find("29"), nullptr);
  keep(answers, "after", 1, 1);
  EXPECT_NE(answers.find("after"), nullptr);
}

}  // namespace
}  // namespace lockstep::server
