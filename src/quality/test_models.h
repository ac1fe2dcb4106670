// For the tests of this folder: small models with random weights, and texts of random tokens.
#pragma once

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "forge/forge.h"
#include "gguf/quantize.h"
#include "model/archs.h"
#include "quality/quality.h"

namespace lockstep::quality {

class ModelTest : public testing::Test {
 protected:
  forge::Spec spec(const std::string& arch) {
    forge::Spec out;
    out.arch = arch;
    out.layers = 3;
    out.heads = 4;
    out.kv_heads = arch == "gpt2" ? 4 : 2;
    out.vocabulary = 131;
    out.type = "f32";
    out.seed = random_.next();
    if (model::find_architecture(arch)->experts) {
      out.experts = 4;
      out.experts_used = 2;
    }
    return out;
  }

  model::Model forged(const forge::Spec& spec) {
    const std::string path = fresh_path();
    const auto written = forge::write_model(spec, path);
    EXPECT_TRUE(written.ok()) << written.error().message;
    return model::Model::load(path).value();
  }

  model::Model quantized(const model::Model& source, const char* type) {
    return quantized(source, {.recipe = quant::find_recipe(type)});
  }

  model::Model quantized(const model::Model& source, const gguf::QuantizeOptions& options) {
    const std::string path = fresh_path();
    const auto plan = gguf::plan_quantization(source.file(), options);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_TRUE(gguf::quantize(source.file(), *plan, path, [](int64_t) {}).ok());
    return model::Model::load(path).value();
  }

  std::vector<exec::TokenId> text(int64_t tokens) {
    std::vector<exec::TokenId> out;
    for (int64_t i = 0; i < tokens; ++i)
      out.push_back(static_cast<exec::TokenId>(random_.below(131)));
    return out;
  }

  std::vector<Window> windows(int64_t tokens) {
    return cut_text(text(tokens), {24, 6, {}}).value();
  }

  std::string fresh_path() { return (folder_.path() / fmt::format("{}.gguf", ++files_)).string(); }

  static Setting setting(const char* device) {
    return {exec::find_device(device).value(), {.threads = 1, .pin = false}};
  }

  static void ignore(int64_t, int64_t) {}

  Random random_{std::random_device{}()};
  const TemporaryFolder folder_ = TemporaryFolder::create().value();
  int files_ = 0;
};

}  // namespace lockstep::quality
