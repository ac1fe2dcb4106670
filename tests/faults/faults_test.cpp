// Memory or threads that the system refuses, at every point in turn: an error of the job or its
// right result, never the end of the program, a leak, or a session that is of no use afterwards.
#include <filesystem>
#include <functional>
#include <stdexcept>

#include <gtest/gtest.h>

#include "base/bandwidth.h"
#include "base/no_throw.h"
#include "base/parallel.h"
#include "base/temporary_folder.h"
#include "engine/recording.h"
#include "engine/session.h"
#include "exec/cpu/team.h"
#include "faults/inject.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using faults::Refuse;

const std::string kFaultModel = LOCKSTEP_MODELS "/haiku-granite-q4_k_m.gguf";
constexpr const char* kDevicesTried[] = {"cpu", "reference"};

// What a job computes, so that the same job can be seen to give the same again.
using Job = std::function<Result<std::string>()>;

void refuse_in_turn(
    const Job& tried, void (*refuse)(int64_t, Refuse), const char* what,
    const std::function<void()>& prepare = [] {}) {
  const auto job = [&] {
    prepare();
    return tried();
  };
  const Result<std::string> expected = job();
  ASSERT_TRUE(expected.ok()) << what << ": " << expected.error().message;
  ASSERT_TRUE(job().ok());
  const int64_t live = faults::live_allocations();
  int64_t failed = 0;
  for (const Refuse mode : {Refuse::kOne, Refuse::kAllFrom})
    for (int64_t number = 1;; number = faults::next_point(number)) {
      prepare();
      refuse(number, mode);
      const Result<std::string> outcome = tried();
      const bool refused = faults::grant();
      failed += outcome.ok() ? 0 : 1;
      if (outcome.ok()) {
        ASSERT_EQ(*outcome, *expected) << what << " at " << number;
      } else {
        ASSERT_FALSE(outcome.error().message.empty()) << what << " at " << number;
      }
      if (!refused) {
        ASSERT_TRUE(outcome.ok()) << what << " at " << number;
        break;
      }
      const Result<std::string> again = job();
      ASSERT_TRUE(again.ok()) << what << " after " << number << ": " << again.error().message;
      ASSERT_EQ(*again, *expected) << what << " after " << number;
    }
  EXPECT_LE(faults::live_allocations(), live) << what << ": memory is lost";
  if (refuse == faults::refuse_memory) {
    EXPECT_GT(failed, 0) << what;
  }
}

std::string text_of(const std::vector<engine::TokenId>& tokens) {
  return fmt::format("{}", fmt::join(tokens, " "));
}

struct Loaded {
  std::unique_ptr<model::Model> model;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::vector<engine::TokenId> prompt;

  Loaded() {
    auto loaded = model::Model::load(kFaultModel);
    EXPECT_TRUE(loaded.ok());
    model = std::make_unique<model::Model>(*std::move(loaded));
    auto words = tokenizer::Tokenizer::load(model->file());
    EXPECT_TRUE(words.ok());
    tokenizer = *std::move(words);
    prompt = tokenizer->encode("Write a haiku about rain");
  }

  Result<engine::Session> session(const char* device) const {
    LS_TRY(const exec::Device* found, exec::find_device(device));
    return engine::Session::create(*model, tokenizer.get(), *found, {.threads = 2}, 64);
  }

  engine::Request request() const {
    engine::Request out;
    out.prompt = prompt;
    out.max_tokens = 3;
    return out;
  }
};

TEST(NoMemory, LoadingAModel) {
  const Job load = []() -> Result<std::string> {
    LS_TRY(const model::Model model, model::Model::load(kFaultModel));
    return std::string(model.config().arch->name);
  };
  refuse_in_turn(load, faults::refuse_memory, "load");
}

TEST(NoMemory, LoadingATokenizer) {
  const Loaded loaded;
  const Job load = [&]() -> Result<std::string> {
    LS_TRY(const auto tokenizer, tokenizer::Tokenizer::load(loaded.model->file()));
    return std::to_string(tokenizer->size());
  };
  refuse_in_turn(load, faults::refuse_memory, "load the tokenizer");
}

TEST(NoMemory, Tokenizing) {
  const Loaded loaded;
  const Job encode = [&]() -> Result<std::string> {
    return no_throw([&]() -> Result<std::string> {
      return text_of(loaded.tokenizer->encode("A fresh lake, 257 of them \xc3\xa9\xff; no words"));
    });
  };
  refuse_in_turn(encode, faults::refuse_memory, "tokenize");
}

TEST(NoMemory, MakingASession) {
  const Loaded loaded;
  for (const char* device : kDevicesTried) {
    const Job create = [&]() -> Result<std::string> {
      LS_TRY(const engine::Session session, loaded.session(device));
      return std::to_string(session.program().vocabulary);
    };
    refuse_in_turn(create, faults::refuse_memory, device);
  }
}

TEST(NoMemory, Generating) {
  const Loaded loaded;
  for (const char* device : kDevicesTried) {
    auto session = loaded.session(device);
    ASSERT_TRUE(session.ok());
    const engine::Request request = loaded.request();
    const Job generate = [&]() -> Result<std::string> {
      LS_TRY(const engine::Outcome outcome, session->generate(request, {}));
      return no_throw([&]() -> Result<std::string> { return text_of(outcome.tokens); });
    };
    refuse_in_turn(generate, faults::refuse_memory, device);
  }
}

TEST(NoMemory, Recording) {
  const Loaded loaded;
  for (const char* device : kDevicesTried) {
    auto session = loaded.session(device);
    ASSERT_TRUE(session.ok());
    const auto folder = TemporaryFolder::create();
    ASSERT_TRUE(folder.ok());
    const std::string trace = (folder->path() / "trace").string();
    const std::string log = (folder->path() / "log.jsonl").string();
    trace::Manifest manifest;
    manifest.engine.name = "lockstep";
    const Job record = [&]() -> Result<std::string> {
      return no_throw([&]() -> Result<std::string> {
        engine::Request request = loaded.request();
        trace::RecordOptions options;
        options.folder = trace;
        LS_TRY(engine::Recording recording,
               engine::Recording::start(options, {.file = log}, *session, manifest, request, ""));
        recording.attach(request);
        LS_TRY(const engine::Outcome outcome, session->generate(request, {}));
        LS_TRY_VOID(recording.finish(request.prompt, outcome.tokens));
        return text_of(outcome.tokens);
      });
    };
    faults::grant_json(true);
    refuse_in_turn(record, faults::refuse_memory, device, [&] { fs::remove_all(trace); });
    faults::grant_json(false);
  }
}

TEST(NoThreads, TeamsAreSmaller) {
  for (int64_t number = 1; number <= 4; ++number) {
    faults::refuse_threads(number, Refuse::kAllFrom);
    exec::cpu::Team team(4);
    EXPECT_EQ(faults::grant(), number < 4);
    EXPECT_EQ(team.size(), number);
    std::atomic<int> members{0};
    team.run([&](int) {
      ++members;
      team.meet();
    });
    EXPECT_EQ(members, number);
  }
}

TEST(NoThreads, SpreadWorkIsDoneByFewer) {
  for (int64_t number = 1; number <= 4; ++number) {
    faults::refuse_threads(number, Refuse::kAllFrom);
    std::atomic<int64_t> sum{0};
    parallel_for(
        257, 1, [&](int64_t begin, int64_t end) { sum += end - begin; }, 4);
    faults::grant();
    EXPECT_EQ(sum, 257);
  }
}

TEST(NoThreads, MeasuringBandwidthIsAnError) {
  for (int64_t number = 1; number <= 2; ++number) {
    faults::refuse_threads(number, Refuse::kOne);
    const auto measured = measure_read_bandwidth(3, int64_t{8} << 20);
    EXPECT_TRUE(faults::grant());
    ASSERT_FALSE(measured.ok());
    EXPECT_EQ(measured.error().message, "cannot start 3 threads");
  }
}

TEST(NoThreads, ARunWithTraceGivesTheSameOrAnError) {
  const Loaded loaded;
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  trace::RecordOptions options;
  options.folder = (folder->path() / "trace").string();
  const Job run = [&]() -> Result<std::string> {
    LS_TRY(engine::Session session, loaded.session("cpu"));
    engine::Request request = loaded.request();
    LS_TRY(engine::Recording recording,
           engine::Recording::start(options, {}, session, {}, request, ""));
    recording.attach(request);
    LS_TRY(const engine::Outcome outcome, session.generate(request, {}));
    LS_TRY_VOID(recording.finish(request.prompt, outcome.tokens));
    return text_of(outcome.tokens);
  };
  refuse_in_turn(run, faults::refuse_threads, "a run", [&] { fs::remove_all(options.folder); });
}

TEST(Exceptions, OfTheCallerEndOneGenerationOnly) {
  const Loaded loaded;
  struct Watcher : op::Observer {
    int64_t left = 0;
    bool wants(op::ValueId) const override { return true; }
    void see(op::ValueId, const View&) override {
      if (--left == 0) throw std::runtime_error("seen enough");
    }
  };
  for (const char* device : kDevicesTried) {
    auto session = loaded.session(device);
    ASSERT_TRUE(session.ok());
    engine::Request request = loaded.request();
    const auto expected = session->generate(request, {});
    ASSERT_TRUE(expected.ok());
    for (int64_t place : {1, 2, 17, 40, 100}) {
      Watcher watcher;
      watcher.left = place;
      request.observer = &watcher;
      const auto outcome = session->generate(request, {});
      ASSERT_FALSE(outcome.ok());
      EXPECT_EQ(outcome.error().message, "seen enough");
      request.observer = nullptr;
      const auto again = session->generate(request, {});
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(again->tokens, expected->tokens);
    }
    const auto thrown = session->generate(
        request, [](const engine::Emitted&) { throw std::runtime_error("no more"); });
    ASSERT_FALSE(thrown.ok());
    EXPECT_EQ(thrown.error().message, "no more");
  }
}

// A model file that changes while a session uses it.
TEST(ModelFile, ThatIsCutOrReplacedIsAnErrorUnlessItWasRead) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  const std::string path = (folder->path() / "model.gguf").string();
  for (const char* device : kDevicesTried)
    for (const bool map : {true, false}) {
      fs::copy_file(kFaultModel, path, fs::copy_options::overwrite_existing);
      const auto model = model::Model::load(path, map);
      ASSERT_TRUE(model.ok());
      const auto found = exec::find_device(device);
      const bool repack = std::string_view(device) != "cpu";
      auto session =
          engine::Session::create(*model, nullptr, **found, {.threads = 2, .repack = repack}, 64);
      ASSERT_TRUE(session.ok()) << session.error().message;
      engine::Request request;
      request.prompt = {1, 2, 3};
      request.max_tokens = 8;
      const auto expected = session->generate(request, {});
      ASSERT_TRUE(expected.ok());
      const auto cut =
          session->generate(request, [&](const engine::Emitted&) { fs::resize_file(path, 4096); });
      const auto after = session->generate(request, {});
      if (map) {
        ASSERT_FALSE(cut.ok());
        EXPECT_EQ(cut.error().message, path + ": the file got shorter while it was in use");
        EXPECT_FALSE(after.ok());
      } else {
        ASSERT_TRUE(cut.ok() && after.ok());
        EXPECT_EQ(cut->tokens, expected->tokens);
        EXPECT_EQ(after->tokens, expected->tokens);
      }
    }
}

TEST(ModelFile, ThatIsReplacedIsRefusedBeforeTheJob) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  const std::string path = (folder->path() / "model.gguf").string();
  fs::copy_file(kFaultModel, path);
  const auto model = model::Model::load(path);
  ASSERT_TRUE(model.ok());
  auto session =
      engine::Session::create(*model, nullptr, **exec::find_device("cpu"), {.threads = 1}, 64);
  ASSERT_TRUE(session.ok());
  fs::copy_file(kFaultModel, path + "-new");
  fs::rename(path + "-new", path);
  engine::Request request;
  request.prompt = {1};
  const auto outcome = session->generate(request, {});
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().message,
            path + ": the file changed after it was opened; start again to use the new one");
}

}  // namespace
}  // namespace lockstep
