#include "gguf/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "gguf/test_support.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace lockstep::gguf {
namespace {

using quant::Format;
using test::TempFolder;

struct Source {
  std::string name;
  std::vector<int64_t> dims;
  std::vector<float> values;
  Format format = Format::kF32;
};

Source random_tensor(Random& random, std::string name, std::vector<int64_t> dims,
                     Format format = Format::kF32) {
  int64_t n = 1;
  for (const int64_t dim : dims) n *= dim;
  Source source{std::move(name), std::move(dims), {}, format};
  for (int64_t i = 0; i < n; ++i)
    source.values.push_back(static_cast<float>(random.gaussian()) * 0.05f);
  return source;
}

void write(const std::string& path, const std::vector<Source>& sources,
           std::vector<Entry> metadata) {
  std::vector<TensorPlan> plans;
  for (const Source& s : sources) plans.push_back({s.name, &quant::info(s.format), s.dims});
  auto writer = Writer::create(path, metadata, plans);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  for (const Source& s : sources) {
    const auto n = static_cast<int64_t>(s.values.size());
    std::vector<std::byte> bytes(static_cast<size_t>(quant::size_bytes(quant::info(s.format), n)));
    quant::encode(s.format, s.values.data(), n, bytes.data());
    ASSERT_TRUE(writer->write(bytes).ok());
  }
  const auto done = writer->finish();
  ASSERT_TRUE(done.ok()) << done.error().message;
}

std::vector<Entry> model_metadata() {
  return {{"general.architecture", {std::string("llama")}},
          {"general.file_type", {uint32_t{0}}},
          {"llama.block_count", {uint32_t{8}}},
          {"llama.attention.head_count", {uint32_t{4}}},
          {"llama.attention.head_count_kv", {uint32_t{2}}},
          {"split.count", {uint16_t{1}}},
          {"test.texts", {Array{std::vector<std::string>{"a", "b"}}}}};
}

std::vector<Source> model_tensors(Random& random) {
  return {random_tensor(random, "token_embd.weight", {256, 31}),
          random_tensor(random, "output.weight", {256, 31}),
          random_tensor(random, "blk.0.attn_norm.weight", {256}, Format::kF16),
          random_tensor(random, "blk.0.attn_v.weight", {256, 7}, Format::kF16),
          random_tensor(random, "blk.1.attn_v.weight", {256, 7}),
          random_tensor(random, "blk.0.ffn_down.weight", {96, 256}, Format::kBF16),
          random_tensor(random, "blk.0.ffn_up.weight", {256, 96}),
          random_tensor(random, "blk.0.odd.weight", {7, 5}),
          // More than is converted at a time; one-dimensional, so that it is done quickly.
          random_tensor(random, "large.weight", {4500000}, Format::kF16)};
}

TEST(Quantize, WritesTheMixAndKeepsTheRest) {
  const uint64_t seed = 9;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Random random(seed);
  const TempFolder folder;
  const std::vector<Source> sources = model_tensors(random);
  write(folder.file("in.gguf"), sources, model_metadata());
  auto source = File::open(folder.file("in.gguf"));
  ASSERT_TRUE(source.ok()) << source.error().message;
  auto plan = plan_quantization(*source, {quant::find_recipe("Q4_K_M")});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  int64_t advanced = 0;
  const auto done =
      quantize(*source, *plan, folder.file("out.gguf"), [&](int64_t bytes) { advanced += bytes; });
  ASSERT_TRUE(done.ok()) << done.error().message;
  int64_t data_bytes = 0;
  for (const Tensor& tensor : source->tensors())
    data_bytes += static_cast<int64_t>(tensor.data.size());
  EXPECT_EQ(advanced, data_bytes);

  const auto out = File::open(folder.file("out.gguf"));
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_EQ(*out->integer("general.file_type"), 15);
  EXPECT_EQ(*out->integer("general.quantization_version"), 2);
  EXPECT_EQ(*out->text("general.architecture"), "llama");
  EXPECT_EQ(out->find("split.count"), nullptr);
  EXPECT_EQ((*out->texts("test.texts"))->size(), 2u);
  EXPECT_EQ(out->metadata().size(), 7u);

  const std::vector<std::string_view> expected = {"Q4_K", "Q6_K", "F32", "Q6_K", "Q4_K",
                                                  "Q8_0", "Q4_K", "F16", "F32"};
  ASSERT_EQ(out->tensors().size(), sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    const Tensor& tensor = out->tensors()[i];
    SCOPED_TRACE(tensor.name);
    EXPECT_EQ(tensor.name, sources[i].name);
    EXPECT_EQ(tensor.dims, sources[i].dims);
    EXPECT_EQ(tensor.format->name, expected[i]);
    // The same bytes as encoding what the source decodes to, whatever the pieces and threads.
    const Tensor& from = source->tensors()[i];
    std::vector<float> values(static_cast<size_t>(from.values()));
    quant::decode(from.format->format(), from.data.data(), from.values(), values.data());
    std::vector<std::byte> bytes(tensor.data.size());
    quant::encode(tensor.format->format(), values.data(), from.values(), bytes.data());
    EXPECT_TRUE(std::ranges::equal(bytes, tensor.data));
    // The error that is told is that of the file.
    std::vector<float> written(values.size());
    quant::decode(tensor.format->format(), tensor.data.data(), from.values(), written.data());
    double squares = 0, square_errors = 0;
    for (size_t k = 0; k < values.size(); ++k) {
      squares += static_cast<double>(values[k]) * values[k];
      square_errors += std::pow(static_cast<double>(written[k]) - values[k], 2);
    }
    const double relative = std::sqrt(square_errors / squares);
    EXPECT_NEAR((*done)[i].relative(), relative, 1e-9 * relative);
    EXPECT_EQ((*done)[i].relative() == 0, expected[i] == "F32");
  }
}

TEST(Quantize, ErrorsOfNothingAndOfZeros) {
  EXPECT_EQ(QuantizeError{}.relative(), 0);
  EXPECT_EQ((QuantizeError{4, 0}.relative()), 0);
  EXPECT_EQ((QuantizeError{4, 1}.relative()), 0.5);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ((QuantizeError{0, 1}.relative()), infinity);
  EXPECT_EQ((QuantizeError{4, std::nan("")}.relative()), infinity);

  const TempFolder folder;
  Source zeros{"zero.weight", {256, 3}, std::vector<float>(768, 0.0f)};
  write(folder.file("in.gguf"), {zeros}, {});
  auto source = File::open(folder.file("in.gguf"));
  ASSERT_TRUE(source.ok());
  const auto plan = plan_quantization(*source, {quant::find_recipe("Q4_K_M")});
  const auto done = quantize(*source, *plan, folder.file("out.gguf"), [](int64_t) {});
  ASSERT_TRUE(done.ok());
  ASSERT_EQ(done->size(), 1u);
  EXPECT_EQ((*done)[0].relative(), 0);
}

TEST(Quantize, PureLeavesNoMix) {
  Random random(10);
  const TempFolder folder;
  write(folder.file("in.gguf"), model_tensors(random), model_metadata());
  auto source = File::open(folder.file("in.gguf"));
  ASSERT_TRUE(source.ok());
  const auto plan = plan_quantization(*source, {quant::find_recipe("Q4_K_M"), true});
  ASSERT_TRUE(plan.ok());
  std::vector<std::string_view> formats;
  for (const TensorPlan& tensor : plan->tensors) formats.push_back(tensor.format->name);
  EXPECT_EQ(formats, (std::vector<std::string_view>{"Q4_K", "Q4_K", "F32", "Q4_K", "Q4_K", "Q5_0",
                                                    "Q4_K", "F16", "F32"}));
}

TEST(Quantize, QuantizedSourcesNeedLeave) {
  Random random(11);
  const TempFolder folder;
  write(folder.file("in.gguf"),
        {random_tensor(random, "a.weight", {64, 3}, Format::kQ4_0),
         random_tensor(random, "b.weight", {64, 3}, Format::kQ8_0)},
        {});
  auto source = File::open(folder.file("in.gguf"));
  ASSERT_TRUE(source.ok());
  const quant::Recipe* q8 = quant::find_recipe("Q8_0");
  const auto refused = plan_quantization(*source, {q8});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("tensor a.weight is Q4_0 already"), std::string::npos)
      << refused.error().message;
  const auto kept = plan_quantization(*source, {.recipe = q8, .keep_quantized = true});
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_EQ(kept->tensors[0].format->name, "Q4_0");
  const auto plan = plan_quantization(*source, {q8, false, true});
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(quantize(*source, *plan, folder.file("out.gguf"), [](int64_t) {}).ok());
  const auto out = File::open(folder.file("out.gguf"));
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->tensors()[0].format->name, "Q8_0");
  // What is in the format already is copied, not encoded again.
  EXPECT_TRUE(std::ranges::equal(out->tensors()[1].data, source->tensors()[1].data));
}

TEST(Quantize, NonFiniteValuesAreErrors) {
  const float bad_values[] = {std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(), std::nanf("")};
  for (const float bad : bad_values) {
    for (const char* recipe : {"Q4_0", "F16", "F32"}) {
      SCOPED_TRACE(fmt::format("{} {}", bad, recipe));
      Random random(12);
      const TempFolder folder;
      std::vector<Source> sources = {random_tensor(random, "good.weight", {32, 3}),
                                     random_tensor(random, "bad.weight", {32, 4000})};
      sources[1].values[99999] = bad;
      sources[1].values[32 * 2000 + 5] = bad;
      write(folder.file("in.gguf"), sources, {});
      auto source = File::open(folder.file("in.gguf"));
      ASSERT_TRUE(source.ok());
      const auto plan = plan_quantization(*source, {quant::find_recipe(recipe)});
      ASSERT_TRUE(plan.ok());
      const auto done = quantize(*source, *plan, folder.file("out.gguf"), [](int64_t) {});
      ASSERT_FALSE(done.ok());
      EXPECT_NE(done.error().message.find("tensor bad.weight: value 64005 at [5, 2000]"),
                std::string::npos)
          << done.error().message;
      EXPECT_EQ(folder.entries(), 1u);  // nothing is left behind
    }
  }
}

TEST(Quantize, UnwritablePathsAreErrors) {
  Random random(13);
  const TempFolder folder;
  write(folder.file("in.gguf"), {random_tensor(random, "a.weight", {32, 3})}, {});
  auto source = File::open(folder.file("in.gguf"));
  ASSERT_TRUE(source.ok());
  const auto plan = plan_quantization(*source, {quant::find_recipe("Q4_0")});
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(quantize(*source, *plan, folder.file("no/such/folder.gguf"), [](int64_t) {}).ok());
}

TEST(Quantize, ARecipeGivesTensorsTheirFormats) {
  Random random(21);
  const TempFolder folder;
  write(folder.file("in.gguf"), model_tensors(random), model_metadata());
  const File source = File::open(folder.file("in.gguf")).value();
  const auto plan_with = [&](std::string_view text) {
    const auto recipe = quant::TensorRecipe::parse(text, "mix.recipe").value();
    return plan_quantization(source, {.tensors = &recipe});
  };
  const auto plan = plan_with(
      "* F16\nblk.*.weight Q4_K\nblk.0.ffn_down.weight Q8_0\nblk.0.odd.weight BF16\n"
      "output.weight Q6_K\n");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const std::vector<std::string_view> expected = {"F16",  "Q6_K", "F32",  "Q4_K", "Q4_K",
                                                  "Q8_0", "Q4_K", "BF16", "F32"};
  ASSERT_EQ(plan->tensors.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(plan->tensors[i].format->name, expected[i]) << plan->tensors[i].name;
  ASSERT_TRUE(quantize(source, *plan, folder.file("out.gguf"), [](int64_t) {}).ok());
  EXPECT_EQ(*File::open(folder.file("out.gguf"))->integer("general.file_type"), 0);  // mostly F32

  const auto problem = [&](std::string_view text) {
    const auto outcome = plan_with(text);
    return outcome.ok() ? "" : outcome.error().message;
  };
  EXPECT_EQ(problem("blk.* F16\noutput.weight F16"),
            "mix.recipe: no line fits the tensor token_embd.weight; a first line such as '* Q4_K' "
            "fits all");
  EXPECT_EQ(
      problem("* Q4_K"),
      "mix.recipe: blk.0.ffn_down.weight cannot be Q4_K: its rows have 96 values, which is no "
      "multiple of 256");
  EXPECT_EQ(problem("* F16\nblk.9.* Q8_0"),
            "mix.recipe: line 2: 'blk.9.*' fits no matrix of " + source.path());
  EXPECT_EQ(problem("* F16\nblk.0.attn_norm.weight F16"),
            "mix.recipe: line 2: 'blk.0.attn_norm.weight' fits no matrix of " + source.path());
}

}  // namespace
}  // namespace lockstep::gguf
