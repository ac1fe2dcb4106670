// DeepSeek's weight of keys and values: whole in one file, in two tensors in the other.
#include "audit/test_support.h"

namespace lockstep::audit::test {
namespace {

using quant::Format;

// Made for a run by chance: sizes that are not each other's.
struct Latent {
  int64_t heads = 3, still = 32, value = 64, row = 96;
  Floats whole, keys, values;

  explicit Latent(Random& random) : whole(gaussian(random, heads * (still + value) * row)) {
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t column = 0; column < row; ++column)
        for (int64_t i = 0; i < still; ++i) keys.push_back(at(head, i, column));
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t i = 0; i < value; ++i)
        for (int64_t column = 0; column < row; ++column)
          values.push_back(at(head, still + i, column));
  }
  float at(int64_t head, int64_t i, int64_t column) const {
    return whole[static_cast<size_t>((head * (still + value) + i) * row + column)];
  }

  Model in_one(Format format) const {
    Model model;
    model.add("blk.0.attn_kv_b.weight", {row, heads * (still + value)}, whole, format);
    return model;
  }
  Model in_two(Format format) const {
    Model model;
    model.add("blk.0.attn_k_b.weight", {still, row, heads}, keys, format);
    model.add("blk.0.attn_v_b.weight", {row, value, heads}, values, format);
    return model;
  }
};

std::vector<std::string> verdicts(const Model& a, const Model& b) {
  std::vector<std::string> out;
  for (const auto& [name, tensor] : tensors_of(a, b))
    out.push_back(fmt::format("{} {}", name, verdict_of(tensor)));
  return out;
}

TEST(AuditLatent, OneTensorOrTwoAreTheSameModel) {
  Random random(fresh_seed());
  const Latent latent(random);
  using Texts = std::vector<std::string>;
  const Texts equal = {"blk.0.attn_k_b.weight equal", "blk.0.attn_v_b.weight equal"};
  EXPECT_EQ(verdicts(latent.in_one(Format::kF32), latent.in_two(Format::kF32)), equal);
  EXPECT_EQ(verdicts(latent.in_two(Format::kF32), latent.in_one(Format::kF32)), equal);
  EXPECT_EQ(verdicts(latent.in_one(Format::kBF16), latent.in_two(Format::kBF16)), equal);
  const Texts quantized = {"blk.0.attn_k_b.weight quantized", "blk.0.attn_v_b.weight quantized"};
  EXPECT_EQ(verdicts(latent.in_one(Format::kF16), latent.in_two(Format::kQ4_0)), quantized);
  EXPECT_EQ(verdicts(latent.in_two(Format::kQ4_0), latent.in_one(Format::kF32)), quantized);
  EXPECT_EQ(verdicts(latent.in_one(Format::kQ8_0), latent.in_two(Format::kQ4_0)), quantized);
  // Of the two sides the finer one is laid out anew.
  const Texts joined = {"blk.0.attn_kv_b.weight quantized"};
  EXPECT_EQ(verdicts(latent.in_two(Format::kF32), latent.in_one(Format::kQ4_0)), joined);
  EXPECT_EQ(verdicts(latent.in_one(Format::kQ5_1), latent.in_two(Format::kF16)), joined);
}

TEST(AuditLatent, WhatIsWrongIsTold) {
  Random random(fresh_seed());
  const Latent latent(random);
  Model scaled = latent.in_two(Format::kF32);
  Floats twice = latent.values;
  for (float& x : twice) x *= 2;
  scaled.tensors.pop_back();
  scaled.add("blk.0.attn_v_b.weight", {latent.row, latent.value, latent.heads}, twice);
  auto found = tensors_of(latent.in_one(Format::kF32), scaled);
  EXPECT_EQ(verdict_of(found.at("blk.0.attn_k_b.weight")), "equal");
  EXPECT_EQ(verdict_of(found.at("blk.0.attn_v_b.weight")), "wrong scaled");
  EXPECT_EQ(found.at("blk.0.attn_k_b.weight").detail, "in A: rows of blk.0.attn_kv_b.weight");
  // Keys that were not transposed, under the shape of those that are.
  Floats plain;
  for (int64_t head = 0; head < latent.heads; ++head)
    for (int64_t i = 0; i < latent.still; ++i)
      for (int64_t column = 0; column < latent.row; ++column)
        plain.push_back(latent.at(head, i, column));
  Model untransposed;
  untransposed.add("blk.0.attn_k_b.weight", {latent.still, latent.row, latent.heads}, plain);
  untransposed.add("blk.0.attn_v_b.weight", {latent.row, latent.value, latent.heads},
                   latent.values);
  found = tensors_of(latent.in_one(Format::kF32), untransposed);
  EXPECT_EQ(found.at("blk.0.attn_k_b.weight").verdict, Verdict::kWrong);
  EXPECT_EQ(verdict_of(found.at("blk.0.attn_v_b.weight")), "equal");
  // Other sizes are no such pair.
  Model other = latent.in_two(Format::kF32);
  other.tensors[0].dims = {latent.still * latent.heads, latent.row, 1};
  EXPECT_EQ(verdict_of(tensors_of(latent.in_one(Format::kF32), other).at("blk.0.attn_kv_b.weight")),
            "missing");
  // Nor are more numbers than the whole has, in a dimension more.
  for (const size_t which : {0U, 1U}) {
    Model more = latent.in_two(Format::kF32);
    Model::Made& part = more.tensors[which];
    part.dims.push_back(2);
    const std::vector<std::byte> once = part.data;
    part.data.insert(part.data.end(), once.begin(), once.end());
    for (const auto& [a, b] : {std::pair(latent.in_one(Format::kF32), more),
                               std::pair(more, latent.in_one(Format::kF32))}) {
      const auto verdict = verdict_of(tensors_of(a, b).at("blk.0.attn_kv_b.weight"));
      EXPECT_TRUE(verdict == "missing" || verdict == "extra") << verdict;
    }
  }
}

}  // namespace
}  // namespace lockstep::audit::test
