#include "server/judgements.h"

#include <csignal>
#include <fstream>

#include <gtest/gtest.h>

#include "exec/registry.h"

namespace lockstep::server {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Told : Responder {
  void respond(HttpResponse given) override { response = std::move(given); }
  void begin_events() override {}
  void send(std::string_view) override {}
  void end() override {}
  void drop() noexcept override {}
  std::optional<HttpResponse> response;
};

struct Ended : JobListener {
  void accepted(const Job&) override {}
  void refused(const ApiError& problem) override { ADD_FAILURE() << problem.message; }
  void started(const Job&) override {}
  std::optional<ApiError> token(const Job&, const JobToken&) override { return std::nullopt; }
  void ended(const Job&, const JobEnd&) override { over = true; }
  bool over = false;
};

constexpr const char* kGood = R"({"parity": true, "verdict": "drift", "headline": "In parity: all",
  "diagnoses": [], "choices": {"mean_kl": 0.25},
  "checkpoints": [{"suspect": {"ratio": 0.5}}, {"suspect": {"ratio": null}}, {"suspect": null}]})";

class JudgementsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto loaded = ServedModel::load(LOCKSTEP_MODELS "/haiku-llama-q4_k_m.gguf",
                                    **exec::find_device("cpu"), {.threads = 1}, 0);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = std::move(*loaded);
  }
  static void TearDownTestSuite() { model_ = nullptr; }

  void SetUp() override {
    write("result.json", kGood);
    program("");
  }
  void TearDown() override {
    judgements_ = nullptr;
    worker_ = nullptr;
  }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() / name) << text;
  }
  std::string read(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // What stands for our program: tells how it was called, does `more`, and judges as result.json
  // says.
  void program(const std::string& more) {
    write("program", fmt::format("#!/bin/sh\ncd {}\necho \"$@\" >> calls\n{}\n"
                                 "if [ $1 = run ]; then cp -r ${{11%/*}}/answer.trace ${{11}}; fi\n"
                                 "if [ $1 = compare ]; then echo '<p>report' > \"$6\"; cat "
                                 "result.json; fi\n",
                                 folder_.path().string(), more));
    fs::permissions(folder_.path() / "program", fs::perms::owner_all);
  }

  void start(int64_t disk_bytes = 1'000'000'000) {
    judgements_ = nullptr;
    worker_ = nullptr;
    network_ = std::make_unique<boost::asio::io_context>();
    worker_ = std::make_unique<Worker>(*network_, *model_, WorkerOptions(), metrics_);
    JudgeOptions options;
    options.disk_bytes = disk_bytes;
    options.program = (folder_.path() / "program").string();
    judgements_ = std::make_unique<Judgements>(*network_, *worker_, *model_, metrics_, options);
    worker_->on_end = [this](const Job& job, bool ended) {
      if (!job.record) last_ = {job.id, job.request.prompt, job.told};
      judgements_->keep(job, ended);
    };
  }

  void until(const std::function<bool()>& done) {
    const auto busy = boost::asio::make_work_guard(*network_);
    network_->restart();
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (!done() && Clock::now() < deadline) network_->run_one_for(std::chrono::milliseconds(5));
    ASSERT_TRUE(done());
  }

  // A job, with its end.
  void answer(const std::string& id, int64_t tokens = 7, double temperature = 0) {
    auto job = std::make_shared<Job>();
    job->id = id;
    job->fields.prompt = "GPU haiku with word seven: ";
    job->fields.max_tokens = tokens;
    job->fields.sampling.temperature = temperature;
    job->fields.logprobs = 2;
    auto ended = std::make_shared<Ended>();
    job->listener = ended;
    ASSERT_FALSE(worker_->submit(job));
    until([&] { return ended->over; });
  }

  Json begin(const std::string& id, int status) {
    const HttpResponse response = judgements_->begin(id);
    EXPECT_EQ(response.status, status) << response.body;
    return Json::parse(response.body);
  }
  Json ask(const std::string& path, int status = 200) {
    const auto told = std::make_shared<Told>();
    judgements_->show(path, told);
    EXPECT_TRUE(told->response.has_value());
    EXPECT_EQ(told->response->status, status);
    return Json::parse(told->response->body);
  }
  Json show(const Json& judgement) { return ask("/judge/" + judgement["id"].get<std::string>()); }

  // What became of it.
  Json outcome(const Json& judgement) {
    until([&] {
      const std::string status = show(judgement)["status"];
      return status == "done" || status == "failed";
    });
    return show(judgement);
  }

  struct Last {
    std::string id;
    std::vector<engine::TokenId> prompt, told;
  };
  const TemporaryFolder folder_ = TemporaryFolder::create().value();
  static std::unique_ptr<ServedModel> model_;
  Metrics metrics_;
  Last last_;
  std::unique_ptr<boost::asio::io_context> network_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Judgements> judgements_;
};

std::unique_ptr<ServedModel> JudgementsTest::model_;

TEST_F(JudgementsTest, ARecordingAVerdictAndAReport) {
  start();
  answer("one", 9, 1.5);
  const Json begun = begin("one", 202);
  EXPECT_EQ(begun["status"], "waiting");
  EXPECT_EQ(begin("one", 202)["id"], begun["id"]);  // one is under way
  const Json done = outcome(begun);
  ASSERT_EQ(done["status"], "done") << done;
  EXPECT_EQ(done["job_id"], "one");
  EXPECT_EQ(done["parity"], true);
  EXPECT_EQ(done["verdict"], "drift");
  EXPECT_EQ(done["headline"], "In parity: all");
  EXPECT_TRUE(done["cause"].is_null());
  EXPECT_EQ(done["worst_ratio"], 0.5);
  EXPECT_EQ(done["mean_kl"], 0.25);
  EXPECT_EQ(done["tokens"], 9);
  EXPECT_EQ(done["tokens_recorded"], 9);
  EXPECT_EQ(done["positions"], last_.prompt.size() + 9);
  for (const char* stage : {"waiting", "recording", "computing", "judging"})
    EXPECT_GE(done["seconds"][stage].get<double>(), 0) << stage;
  EXPECT_EQ(begin("one", 200), done);
  EXPECT_EQ(metrics_.judgements.parity, 1);

  // The same tokens, but for the last, from which nothing was computed.
  std::string tokens;
  for (const auto& part : {last_.prompt, last_.told})
    for (const engine::TokenId token : part) tokens += fmt::format(",{}", token);
  tokens = tokens.substr(1, tokens.rfind(',') - 1);
  const std::string calls = read(folder_.path() / "calls");
  EXPECT_TRUE(calls.starts_with(
      fmt::format("run --device reference --tokens {} -n 0 --ctx 256 --trace /", tokens)))
      << calls;
  EXPECT_NE(calls.find("\ncompare /"), std::string::npos) << calls;

  const auto told = std::make_shared<Told>();
  judgements_->show(done["report"], told);
  until([&] { return told->response.has_value(); });
  EXPECT_EQ(told->response->status, 200);
  EXPECT_EQ(told->response->body, "<p>report\n");
  bool sandboxed = false;
  for (const auto& [name, value] : told->response->headers)
    sandboxed = sandboxed || value.find("sandbox allow-scripts") != std::string::npos;
  EXPECT_TRUE(sandboxed);
}

TEST_F(JudgementsTest, ADefectHasItsCause) {
  write("result.json", R"({"parity": false, "verdict": "defect", "headline": "Not in parity",
    "diagnoses": [{"text": "It reads x."}], "choices": {"mean_kl": null},
    "checkpoints": [{"suspect": {"ratio": 7}}, {"suspect": {"ratio": 3}}]})");
  program("[ $1 = compare ] && trap 'exit 1' EXIT");
  start();
  answer("one");
  const Json done = outcome(begin("one", 202));
  ASSERT_EQ(done["status"], "done") << done;
  EXPECT_EQ(done["parity"], false);
  EXPECT_EQ(done["cause"], "It reads x.");
  EXPECT_EQ(metrics_.judgements.no_parity, 1);
  EXPECT_EQ(done["worst_ratio"], 7);
  EXPECT_TRUE(done["mean_kl"].is_null());
}

TEST_F(JudgementsTest, WhatFailsSaysWhyAndCanBeTriedAgain) {
  const struct {
    const char* program;
    const char* result;
    std::string message;
  } cases[] = {
      {"echo 'no model' >&2; exit 2", kGood,
       "the run in double precision ended with exit status 2: no model"},
      {"[ $1 = compare ] && { echo 'other file' >&2; exit 2; }", kGood,
       "the comparison ended with exit status 2: other file"},
      {"kill -KILL $$", kGood, "the run in double precision was ended by signal 9 (Killed)"},
      {"[ $1 = run ] && exit 0", kGood, "/"},  // no trace
      {"[ $1 = run ] && { cp -r ${11%/*}/answer.trace ${11}; "
       "sed -i 's/fingerprint\": *\"/&x/' ${11}/manifest.json; exit 0; }",
       kGood, model_->manifest.model.path + ": the file is no longer the model that is served"},
      {"", "{", "the comparison's result"},
      {"", "{\"parity\": 1}", "the comparison's result: parity: found 1, expected true or false"},
  };
  start();
  answer("one");
  std::string before;
  for (const auto& item : cases) {
    program(item.program);
    write("result.json", item.result);
    const Json begun = begin("one", 202);
    EXPECT_NE(begun["id"], before);
    before = begun["id"];
    const Json failed = outcome(begun);
    EXPECT_EQ(failed["status"], "failed");
    EXPECT_EQ(failed["error"]["code"], "INTERNAL");
    EXPECT_TRUE(failed["error"]["message"].get<std::string>().starts_with(item.message)) << failed;
    EXPECT_FALSE(failed.contains("report"));
    EXPECT_EQ(ask("/judge/" + before + "/report", 404)["error"]["message"],
              "the judgement has no report: it is not done, or it failed");
  }
  program("");
  write("result.json", kGood);
  EXPECT_EQ(outcome(begin("one", 202))["status"], "done");
  EXPECT_EQ(metrics_.judgements.failed, std::ssize(cases));
  EXPECT_EQ(metrics_.judgements.parity, 1);
}

TEST_F(JudgementsTest, AnAnswerThatDoesNotComeAgain) {
  start();
  answer("one", 7);
  Job job;
  job.request.prompt = last_.prompt;
  const auto message = [&](const std::string& id) {
    job.id = id;
    judgements_->keep(job, false);
    const Json failed = outcome(begin(id, 202));
    EXPECT_EQ(failed["error"]["code"], "NOT_REPEATED") << failed;
    return failed["error"]["message"].get<std::string>();
  };
  job.told = last_.told;
  job.told[3] += 1;
  EXPECT_EQ(message("token"),
            fmt::format("the answer did not come again as it was: token 3 was {}, and is {} now; "
                        "what was told cannot be judged",
                        job.told[3], last_.told[3]));
  job.told = last_.told;
  job.told_logprobs.assign(job.told.size(), -0.5);
  EXPECT_NE(message("logprob").find("the log-probability of token 0 was -0.5, and is "),
            std::string::npos);
  answer("all", 200);  // which the model ends
  job.told_logprobs.clear();
  job.told = last_.told;
  const size_t count = job.told.size();
  job.told.push_back(1);
  EXPECT_NE(
      message("longer").find(fmt::format("it had {} tokens, and has {} now", count + 1, count)),
      std::string::npos);
  EXPECT_FALSE(fs::exists(folder_.path() / "calls"));
}

TEST_F(JudgementsTest, OneAtATimeAndAFewThatWait) {
  program("while [ ! -e go ]; do sleep 0.01; done");
  start();
  std::vector<Json> begun;
  for (int i = 0; i < 6; ++i) answer(fmt::format("{}", i), 1 + i);
  for (int i = 0; i < 5; ++i) begun.push_back(begin(fmt::format("{}", i), 202));
  const HttpResponse busy = judgements_->begin("5");
  EXPECT_EQ(busy.status, 503);
  EXPECT_EQ(Json::parse(busy.body)["error"]["code"], "QUEUE_FULL");
  EXPECT_EQ(Json::parse(busy.body)["error"]["message"],
            "4 judgements wait already; try again later");
  EXPECT_EQ(busy.headers.back(), (std::pair<std::string, std::string>("Retry-After", "10")));
  until([&] { return show(begun[0])["status"] == "computing"; });
  // Jobs go on meanwhile.
  answer("meanwhile");
  // One that waits gives up its place, and the one at work ends at once.
  judgements_->cancel(begun[2]["id"]);
  EXPECT_EQ(show(begun[2])["error"]["message"], "the judgement was cancelled");
  begun.push_back(begin("5", 202));
  judgements_->cancel(begun[0]["id"]);
  EXPECT_EQ(outcome(begun[0])["error"]["code"], "CANCELLED");
  until([&] { return show(begun[1])["status"] == "computing"; });
  for (const int i : {3, 4, 5}) EXPECT_EQ(show(begun[static_cast<size_t>(i)])["status"], "waiting");
  judgements_->cancel("no such judgement");
  write("go", "");
  for (const int i : {1, 3, 4, 5})
    EXPECT_EQ(outcome(begun[static_cast<size_t>(i)])["status"], "done");
}

TEST_F(JudgementsTest, WhatIsNotThere) {
  start();
  EXPECT_EQ(begin("none", 404)["error"]["message"],
            "no answer of job 'none' is kept; the last 64 are, where they have tokens and are not "
            "too large");
  EXPECT_EQ(ask("/judge/x", 404)["error"]["message"], "no such judgement: x; the last 16 are kept");
  for (const char* path : {"/judge/", "/judge//report", "/judge/report", "/judge/../report"})
    ask(path, 404);
  start(0);
  answer("one");
  EXPECT_EQ(begin("one", 404)["error"]["message"], "this server judges nothing (--judge-disk 0)");
  start();
  answer("one");
  judgements_->stop();
  EXPECT_EQ(begin("one", 503)["error"]["code"], "SHUTTING_DOWN");
}

TEST_F(JudgementsTest, DiskIsBounded) {
  start(21'000'000);
  answer("large", 200);
  EXPECT_EQ(begin("large", 400)["error"]["code"], "ANSWER_TOO_LARGE");
  EXPECT_NE(begin("large", 400)["error"]["message"].get<std::string>().find(
                "; there may be 0.021 GB (--judge-disk)"),
            std::string::npos);
  Job job;
  job.id = "long";
  job.request.prompt.assign(16'000, 1);
  job.told = {1};
  judgements_->keep(job, false);
  EXPECT_EQ(begin("long", 400)["error"]["message"],
            "the answer and its prompt have 16001 tokens; at most 16000 are judged");
  // The oldest give way, with their files.
  start(50'000'000);
  std::vector<Json> begun;
  std::vector<fs::path> folders;
  for (int i = 0; i < 3; ++i) {
    answer(fmt::format("{}", i), 1 + i);
    begun.push_back(begin(fmt::format("{}", i), 202));
    EXPECT_EQ(outcome(begun.back())["status"], "done");
    const std::string calls = read(folder_.path() / "calls");
    const size_t at = calls.rfind("--html ") + 7;
    folders.push_back(fs::path(calls.substr(at, calls.find(' ', at) - at)).parent_path());
    EXPECT_TRUE(fs::exists(folders.back() / kReportPage)) << folders.back();
  }
  ask("/judge/" + begun[0]["id"].get<std::string>(), 404);
  EXPECT_FALSE(fs::exists(folders[0]));
  EXPECT_TRUE(fs::exists(folders[1]));
  // And all of it at the end.
  judgements_ = nullptr;
  EXPECT_FALSE(fs::exists(folders[2].parent_path()));
}

TEST_F(JudgementsTest, OnlySoManyAreKept) {
  start();
  answer("one");
  write("result.json", "{");  // one that failed can be judged again
  std::vector<Json> begun;
  for (int i = 0; i < 18; ++i) {
    begun.push_back(begin("one", 202));
    EXPECT_EQ(outcome(begun.back())["status"], "failed");
  }
  ask("/judge/" + begun[0]["id"].get<std::string>(), 404);
  ask("/judge/" + begun[1]["id"].get<std::string>(), 404);
  show(begun[2]);
}

TEST_F(JudgementsTest, TheEndOfTheServerEndsWhatIsUnderWay) {
  program("echo $$ > pid; sleep 100");
  start();
  answer("one");
  begin("one", 202);
  until([&] { return !read(folder_.path() / "pid").empty(); });
  const pid_t started = std::stoi(read(folder_.path() / "pid"));
  ASSERT_EQ(::kill(started, 0), 0);
  judgements_ = nullptr;
  EXPECT_EQ(::kill(started, 0), -1);
}

}  // namespace
}  // namespace lockstep::server
