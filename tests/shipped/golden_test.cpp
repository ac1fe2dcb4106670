// The reference executor against transformers in float64 on the same weights: logits and layer
// outputs of all positions (tests/golden/, made by models/golden.py).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "exec/registry.h"
#include "model/model.h"
#include "trace/safetensors.h"

namespace lockstep {
namespace {

struct Case {
  const char* golden;
  const char* model;
  double largest_nmse;
};

// The bfloat16 run has bfloat16's error, added up over the layers.
constexpr Case kCases[] = {
    {"haiku-gpt2", "haiku-gpt2-f32", 1e-10},   {"haiku-granite", "haiku-granite-f16", 1e-10},
    {"haiku-llama", "haiku-llama-f16", 1e-10}, {"haiku-phi3", "haiku-phi3-f16", 1e-10},
    {"haiku-qwen2", "haiku-qwen2-f16", 1e-10}, {"haiku-llama-bf16", "haiku-llama-f16", 1e-3},
    {"haiku-moe", "haiku-moe-f16", 1e-10},
};

// Keeps what it sees, by name.
class Keeper : public op::Observer {
 public:
  explicit Keeper(const op::Program& program) : program_(program) {}
  bool wants(op::ValueId id) const override { return program_.value(id).checkpoint; }
  void see(op::ValueId id, const View& view) override {
    auto& values = values_[program_.value(id).name];
    for (int64_t i = 0; i < view.size(); ++i) values.push_back(view.at(i));
  }
  const std::vector<double>* find(const std::string& name) const {
    const auto found = values_.find(name);
    return found != values_.end() ? &found->second : nullptr;
  }

 private:
  const op::Program& program_;
  std::map<std::string, std::vector<double>> values_;
};

double number(const trace::StoredTensor& tensor, int64_t index) {
  const std::byte* place = tensor.data.data() + index * tensor.type->size_bytes;
  if (tensor.type->name == "BF16") return load_number(DType::kBF16, place);
  EXPECT_EQ(tensor.type->name, "F64");
  return load_number(DType::kF64, place);
}

std::vector<exec::TokenId> tokens(const trace::StoredTensor& tensor) {
  std::vector<exec::TokenId> out;
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    int64_t id;
    std::memcpy(&id, tensor.data.data() + i * 8, 8);
    out.push_back(static_cast<exec::TokenId>(id));
  }
  return out;
}

class Golden : public ::testing::TestWithParam<Case> {};

TEST_P(Golden, EveryValueAgrees) {
  const Case& c = GetParam();
  auto golden =
      trace::Safetensors::open(std::string(LOCKSTEP_GOLDEN "/") + c.golden + ".safetensors");
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  auto model = model::Model::load(std::string(LOCKSTEP_MODELS "/") + c.model + ".gguf");
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (int prompt = 0; prompt < 3; ++prompt) {
    const std::string prefix = std::to_string(prompt) + "/";
    const auto* ids = golden->find(prefix + "tokens");
    ASSERT_NE(ids, nullptr);
    const auto program = model->program(model->config().context_length);
    ASSERT_TRUE(program.ok());
    const auto device = exec::find_device("reference");
    auto executor = (*device)->create(*program, {});
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    Keeper keeper(*program);
    exec::Step step;
    const auto prompt_tokens = tokens(*ids);
    step.tokens = prompt_tokens;
    step.all_logits = true;
    step.observer = &keeper;
    ASSERT_TRUE((*executor)->run(step).ok());
    size_t compared = 0;
    for (const auto& [key, tensor] : golden->tensors()) {
      if (!key.starts_with(prefix) || key.ends_with("/tokens")) continue;
      SCOPED_TRACE(key);
      const auto* ours = keeper.find(key.substr(prefix.size()));
      ASSERT_NE(ours, nullptr);
      ASSERT_EQ(static_cast<int64_t>(ours->size()), tensor.shape[0] * tensor.shape[1]);
      double error = 0;
      double size = 0;
      for (size_t i = 0; i < ours->size(); ++i) {
        const double truth = number(tensor, static_cast<int64_t>(i));
        error += ((*ours)[i] - truth) * ((*ours)[i] - truth);
        size += truth * truth;
      }
      EXPECT_LT(error / size, c.largest_nmse);
      ++compared;
    }
    // embedding, every layer's output, final_norm, logits
    EXPECT_EQ(compared, static_cast<size_t>(model->config().layers) + 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, Golden, ::testing::ValuesIn(kCases), [](const auto& parameter) {
  std::string name = parameter.param.golden;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace lockstep
