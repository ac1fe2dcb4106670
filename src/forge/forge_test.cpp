#include "forge/forge.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <sched.h>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "base/test_effort.h"
#include "exec/registry.h"
#include "forge/formats.h"
#include "forge/known.h"
#include "model/model.h"
#include "quant/decode.h"

namespace lockstep::forge {
namespace {

namespace fs = std::filesystem;

class Forge : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const Spec& spec) {
    const std::string out = path(fmt::format("{}.gguf", ++count_));
    const auto outcome = write_model(spec, out);
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    return out;
  }

  const TemporaryFolder temporary_ = TemporaryFolder::create().value();
  const fs::path folder_ = temporary_.path();
  int count_ = 0;
};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<float> values_of(const gguf::Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.values()));
  quant::decode(tensor.format->format(), tensor.data.data(), tensor.values(), values.data());
  return values;
}

struct Spread {
  double mean = 0;
  double deviation = 0;
};

template <class Numbers>
Spread spread_of(const Numbers& numbers) {
  double sum = 0, squares = 0;
  for (const auto number : numbers) sum += number;
  const double mean = sum / static_cast<double>(numbers.size());
  for (const auto number : numbers) squares += (number - mean) * (number - mean);
  return {mean, std::sqrt(squares / static_cast<double>(numbers.size()))};
}

// Logits after the last of a few tokens, through the reference executor.
std::vector<double> logits_of(const std::string& path, uint64_t seed) {
  const auto model = model::Model::load(path);
  if (!model.ok()) {
    ADD_FAILURE() << model.error().message;
    return {};
  }
  const auto program = model->program(16);
  EXPECT_TRUE(program.ok());
  auto executor = (*exec::find_device("reference"))->create(*program, {});
  EXPECT_TRUE(executor.ok());
  Random random(seed);
  std::vector<exec::TokenId> tokens(9);
  for (auto& token : tokens)
    token = static_cast<exec::TokenId>(random.below(model->config().vocabulary));
  exec::Step step;
  step.tokens = tokens;
  const auto logits = (*executor)->run(step);
  if (!logits.ok()) {
    ADD_FAILURE() << logits.error().message;
    return {};
  }
  std::vector<double> out;
  for (int64_t i = 0; i < logits->size(); ++i) out.push_back(logits->at(i));
  return out;
}

void expect_sane(const std::vector<double>& logits, int64_t vocabulary) {
  ASSERT_EQ(static_cast<int64_t>(logits.size()), vocabulary);
  for (const double logit : logits) ASSERT_TRUE(std::isfinite(logit));
  const Spread spread = spread_of(logits);
  EXPECT_GT(spread.deviation, 1.5);
  EXPECT_LT(spread.deviation, 4);
  EXPECT_LT(std::abs(spread.mean), 1.5);
}

TEST_F(Forge, EveryArchitectureRunsInEveryKindOfFormat) {
  size_t first = 0;  // a run takes other types of each architecture
  for (const model::Architecture& arch : model::architectures()) {
    size_t number = first++;
    for (const char* type : {"f32", "f16", "q8_0", "q4_k_m", "q2_k", "iq4_xs"}) {
      if (!takes(number++)) continue;
      const uint64_t seed = std::random_device{}();
      SCOPED_TRACE(fmt::format("{} {} seed {}", arch.name, type, seed));
      Spec spec;
      spec.arch = arch.name;
      spec.layers = 1;
      spec.width = 256;
      spec.feed_forward = 256;
      spec.kv_heads = arch.name == "gpt2" ? 0 : 2;
      spec.vocabulary = 257;
      spec.type = type;
      spec.seed = seed;
      expect_sane(logits_of(write(spec), seed), spec.vocabulary);
    }
  }
}

TEST_F(Forge, OddSizesAndExtensionsRun) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  const Spec specs[] = {
      {.layers = 3, .width = 77, .heads = 7, .kv_heads = 1, .head_size = 10, .feed_forward = 101},
      {.width = 56, .heads = 7, .kv_heads = 7, .value_size = 12, .vocabulary = 1031, .tied = true},
      {.arch = "qwen2", .width = 33, .heads = 1, .head_size = 34, .rope_dims = 10, .biases = true},
      {.arch = "qwen3", .heads = 6, .kv_heads = 3, .head_size = 22, .window = 4, .biases = true},
      {.arch = "phi3",
       .heads = 2,
       .context = 512,
       .rope_factors = {.kind = RopeFactors::Kind::kLongShort, .original_context = 8}},
      {.context = 512, .rope_factors = {.kind = RopeFactors::Kind::kShared, .original_context = 8}},
      {.rope_scaling = {.kind = RopeScaling::Kind::kLinear, .factor = 2.5}, .biases = true},
      {.rope_scaling = {.kind = RopeScaling::Kind::kYarn, .factor = 4, .original_context = 64}},
      {.arch = "granite",
       .embedding_scale = 12,
       .residual_scale = 0.22,
       .attention_scale = 0.015625,
       .logit_scale = 8,
       .tied = true},
      {.arch = "gpt2", .width = 35, .heads = 5, .vocabulary = 1000, .tied = true},
  };
  for (size_t i = 0; i < std::size(specs); ++i) {
    SCOPED_TRACE(i);
    for (const char* type : {"f32", "f16", "q4_0"}) {
      Spec spec = specs[i];
      spec.type = type;
      spec.seed = seed;
      expect_sane(logits_of(write(spec), seed), spec.vocabulary);
    }
  }
}

TEST_F(Forge, EveryTypeEncodesWhatWasMeant) {
  for (const std::string& type : type_names()) {
    SCOPED_TRACE(type);
    Spec spec;
    spec.layers = 1;
    spec.width = 256;
    spec.feed_forward = 256;
    spec.vocabulary = 16;
    spec.type = type;
    spec.pure = true;
    const auto file = gguf::File::open(write(spec));
    ASSERT_TRUE(file.ok());
    for (const char* name : {"blk.0.ffn_up.weight", "blk.0.ffn_gate.weight"}) {
      const Spread spread = spread_of(values_of(*file->tensor(name)));
      EXPECT_NEAR(spread.mean, 0, 0.001);
      EXPECT_NEAR(spread.deviation, 1.0 / 16, 0.004);
    }
  }
}

TEST_F(Forge, TheSameSpecGivesTheSameBytes) {
  Spec spec = (*find_known_model("smollm2-135m"))->spec;  // wide enough for pools
  spec.layers = 1;
  spec.vocabulary = 1021;
  spec.type = "q4_k_m";
  spec.seed = 7;
  const std::string first = bytes_of(write(spec));
  // Also on one core.
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(first, bytes_of(write(spec)));
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
  spec.seed = 8;
  EXPECT_NE(first, bytes_of(write(spec)));
}

TEST_F(Forge, NoTwoRowsAndNoTwoTensorsAreAlike) {
  for (const char* type : {"f16", "q4_k", "q4_0"}) {
    SCOPED_TRACE(type);
    Spec spec;
    spec.layers = 1;
    spec.vocabulary = 5003;
    spec.width = 256;
    spec.type = type;
    const auto file = gguf::File::open(write(spec));
    ASSERT_TRUE(file.ok());
    std::set<std::string_view> rows;
    int64_t count = 0;
    for (const gguf::Tensor& tensor : file->tensors()) {
      const int64_t tensor_rows = tensor.dims.size() > 1 ? tensor.dims[1] : 1;
      const auto row_bytes = tensor.data.size() / static_cast<size_t>(tensor_rows);
      for (int64_t row = 0; row < tensor_rows; ++row, ++count)
        rows.insert({reinterpret_cast<const char*>(tensor.data.data()) +
                         static_cast<size_t>(row) * row_bytes,
                     row_bytes});
    }
    EXPECT_EQ(static_cast<int64_t>(rows.size()), count);
  }
}

// Rows from a pool are as random as fresh ones: right size, and unrelated to one another.
TEST_F(Forge, PooledRowsAreGaussianAndUnrelated) {
  Spec spec;
  spec.width = 2048;
  spec.heads = 16;
  spec.vocabulary = 1500;
  spec.type = "q8_0";
  spec.layers = 1;
  const auto file = gguf::File::open(write(spec));
  ASSERT_TRUE(file.ok());
  const std::vector<float> values = values_of(*file->tensor("token_embd.weight"));
  const double wanted = 2.5 / std::sqrt(2048.0);
  const Spread spread = spread_of(values);
  EXPECT_NEAR(spread.deviation, wanted, 0.01 * wanted);
  double largest = 0;
  for (size_t row = 0; row + 1 < 1500; ++row) {
    double dot = 0;
    for (size_t i = 0; i < 2048; ++i)
      dot += double{values[row * 2048 + i]} * double{values[(row + 1) * 2048 + i]};
    largest = std::max(largest, std::abs(dot) / (2048 * wanted * wanted));
  }
  EXPECT_LT(largest, 0.2);  // unrelated rows: deviation 0.022
}

TEST_F(Forge, MetadataTellsWhatTheModelIs) {
  Spec spec = (*find_known_model("granite-3.1-2b"))->spec;
  spec.layers = 1;
  spec.vocabulary = 300;
  spec.type = "q4_k_m";
  spec.seed = 42;
  const auto file = gguf::File::open(write(spec));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*file->text("general.architecture"), "granite");
  EXPECT_EQ(*file->text("general.name"), "granite-3.1-2b");
  EXPECT_NE(file->text("general.description")->find("seed 42"), std::string::npos);
  EXPECT_EQ(*file->integer("general.file_type"), 15);
  EXPECT_EQ(*file->integer("general.quantization_version"), 2);
  EXPECT_EQ(*file->integer("granite.vocab_size"), 300);
  EXPECT_EQ(*file->text("tokenizer.ggml.model"), "none");
  EXPECT_FLOAT_EQ(static_cast<float>(*file->real("granite.residual_scale")), 0.22f);
}

TEST_F(Forge, ATokenizerIsCopied) {
  Spec spec;
  spec.tokenizer = {
      {"tokenizer.ggml.model", gguf::Value{std::string("gpt2")}},
      {"tokenizer.ggml.tokens", gguf::Value{gguf::Array{std::vector<std::string>{"a", "b"}}}}};
  const std::string first = write(spec);
  const auto copied = read_tokenizer(first);
  ASSERT_TRUE(copied.ok()) << copied.error().message;
  EXPECT_EQ(copied->size(), 2u);
  EXPECT_EQ(token_count(*copied), 2);
  spec.tokenizer = *copied;
  EXPECT_EQ(bytes_of(first), bytes_of(write(spec)));
  EXPECT_FALSE(read_tokenizer(path("absent.gguf")).ok());
}

TEST_F(Forge, AFileThatIsThereStays) {
  const std::string out = path("there.gguf");
  std::ofstream(out) << "precious";
  const auto refused = write_model({}, out);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--force"), std::string::npos);
  EXPECT_EQ(bytes_of(out), "precious");
  EXPECT_FALSE(write_model({}, folder_.string(), Existing::kReplace).ok());
  EXPECT_FALSE(write_model({}, path("no/such/folder.gguf")).ok());
  const auto replaced = write_model({}, out, Existing::kReplace);
  EXPECT_TRUE(replaced.ok()) << replaced.error().message;
  EXPECT_TRUE(model::Model::load(out).ok());
}

TEST_F(Forge, AFullDiskLeavesNothingBehind) {
  Spec spec;
  spec.vocabulary = 1'000'000'000;  // 256 TB
  spec.width = 65536;
  spec.type = "f32";
  const auto outcome = write_model(spec, path("large.gguf"));
  ASSERT_FALSE(outcome.ok());
  EXPECT_TRUE(fs::is_empty(folder_)) << outcome.error().message;
}

}  // namespace
}  // namespace lockstep::forge
