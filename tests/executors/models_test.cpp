// Whole models on the fast executors, against the reference: the shipped ones, and forged ones of
// every architecture and format.
#include "executors/models.h"

#include <filesystem>
#include <random>

#include "base/temporary_folder.h"
#include "base/test_effort.h"
#include "executors/run.h"
#include "model/archs.h"
#include "model/model.h"

namespace lockstep {
namespace {

// The largest NMSE of the logits: with an f16 cache, and with an f32 one.
struct Limits {
  double half, single;
};
constexpr Limits kFloat = {1e-6, 1e-11}, kQuantized = {2e-6, 1e-6};

class CpuModels : public ::testing::Test {
 protected:
  void check(const std::string& path, int64_t tokens, Limits limits) {
    SCOPED_TRACE(fmt::format("{}, {} tokens, seed {}", path, tokens, seed_));
    const auto model = model::Model::load(path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto program = model->program(tokens);
    ASSERT_TRUE(program.ok()) << program.error().message;
    const auto ids = random_tokens(random_, program->vocabulary, tokens);
    const bool watched = chooses_experts(*program);
    const Outcome expected = run(*program, ids, {.watched = watched});
    const Outcome half =
        run(*program, ids, {.device = "cpu", .options = {.kv = DType::kF16}, .watched = watched});
    const Outcome single = run(
        *program, ids,
        {.device = "cpu", .options = {.kv = DType::kF32}, .steps = {7, 1, 13}, .watched = watched});
    const auto error = [&](const Outcome& actual) {
      return nmse_of_first(tokens_alike(*program, actual, expected), *program, actual, expected);
    };
    EXPECT_LE(error(half), limits.half);
    EXPECT_LE(error(single), limits.single);

    const auto expect_same = [&](Way way) {
      way.options.kv = DType::kF16;
      EXPECT_EQ(bits(run(*program, ids, way).logits), bits(half.logits)) << way.target;
    };
    expect_same({.device = "cpu", .options = {.threads = 1}, .steps = {1, 2, 31}});
    expect_same({.device = "cpu", .options = {.threads = 3}, .watched = true});
    expect_same({.device = "cpu", .options = {.repack = false}});
    for (const std::string& target : supported_targets())
      if (target != "portable" || tokens < 20) expect_same({.device = "cpu", .target = target});
  }

  uint64_t seed_ = std::random_device{}();
  Random random_{seed_};
};

TEST_F(CpuModels, Shipped) {
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_MODELS)) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string path = entry.path().string();
    const bool quantized = path.find("q4_k_m") != std::string::npos;
    check(path, 70, quantized ? kQuantized : kFloat);
  }
}

TEST_F(CpuModels, ForgedInEveryArchitectureAndFormat) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  constexpr int64_t kFormats = std::ssize(kTypes);
  int64_t number = random_.below(kFormats);
  for (const model::Architecture& arch : model::architectures()) {
    const int64_t own = number++ % kFormats;
    int64_t place = 0;
    for (const char* type : kTypes) {
      // Each architecture and each format comes up; `make test-slow` tries all pairs.
      if (place++ != own && !runs_slow_tests()) continue;
      const forge::Spec spec = small_spec(arch.name, type, random_.next());
      const std::string path = (folder->path() / "model.gguf").string();
      const auto written = forge::write_model(spec, path, forge::Existing::kReplace);
      ASSERT_TRUE(written.ok()) << written.error().message;
      check(path, 19,
            std::string_view(type).ends_with('6') || type == std::string_view("f32") ? kFloat
                                                                                     : kQuantized);
    }
  }
}

// At the end of a prompt only the last row of the last layer is computed; it is the same.
TEST_F(CpuModels, TheLastRowAloneIsTheSame) {
  const auto model = model::Model::load(LOCKSTEP_MODELS "/haiku-qwen2-q4_k_m.gguf");
  ASSERT_TRUE(model.ok());
  const auto program = model->program(64);
  ASSERT_TRUE(program.ok());
  const auto ids = random_tokens(random_, program->vocabulary, 50);
  const Outcome all = run(*program, ids, {.device = "cpu"});
  auto executor = exec::find_device("cpu").value()->create(*program, {});
  ASSERT_TRUE(executor.ok());
  for (int round = 0; round < 2; ++round) {  // the second time from a cache with old contents
    (*executor)->rewind(0);
    const auto last = (*executor)->run({ids, false, nullptr, nullptr});
    ASSERT_TRUE(last.ok());
    ASSERT_EQ(last->shape, (std::vector<int64_t>{1, program->vocabulary}));
    for (int64_t i = 0; i < last->size(); ++i)
      ASSERT_EQ(last->at(i), all.logits[all.logits.size() - static_cast<size_t>(last->size() - i)]);
  }
}

}  // namespace
}  // namespace lockstep
