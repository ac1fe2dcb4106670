#include "exec/cache_type.h"

#include <gtest/gtest.h>

namespace lockstep::exec {
namespace {

op::Program program_with(const char* type, bool experts) {
  op::Weight weight;
  weight.format = quant::find_format(type);
  op::Program program;
  program.ops.emplace_back();
  if (experts) {
    op::ExpertLinear linear;
    linear.weight = weight;
    program.ops.back().what = linear;
  } else {
    op::Linear linear;
    linear.weight = weight;
    program.ops.back().what = linear;
  }
  return program;
}

TEST(CacheType, IsAsFineAsTheWeights) {
  for (const bool experts : {false, true}) {
    for (const char* type : {"f32", "f16", "bf16"})
      EXPECT_FALSE(has_half_cache(program_with(type, experts), {}).value()) << type;
    for (const char* type : {"q8_0", "q4_k", "mxfp4"})
      EXPECT_TRUE(has_half_cache(program_with(type, experts), {}).value()) << type;
  }
  EXPECT_FALSE(has_half_cache({}, {}).value());
}

TEST(CacheType, CanBeChosen) {
  const op::Program floats = program_with("f32", false), codes = program_with("q4_0", false);
  EXPECT_TRUE(has_half_cache(floats, {.kv = DType::kF16}).value());
  EXPECT_FALSE(has_half_cache(codes, {.kv = DType::kF32}).value());
  EXPECT_EQ(has_half_cache(floats, {.kv = DType::kBF16}).error().message,
            "the KV cache can be f16 or f32");
}

}  // namespace
}  // namespace lockstep::exec
