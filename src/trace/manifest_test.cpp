#include "trace/manifest.h"

#include <gtest/gtest.h>

#include "lockstep/detail/precision.h"

namespace lockstep::trace {
namespace {

using nlohmann::json;

Manifest example() {
  Manifest manifest;
  manifest.engine = {"lockstep", "0.1.0", "cpu", {"f32", "q8_0", std::nullopt, "int8:row", "f16"}};
  manifest.model = {"haiku.gguf", "/models/haiku.gguf", "llama", "0123abcd", "Q4_K_M"};
  manifest.forward = {4096, false, 5e5, 0.25};
  manifest.prompt = "a \"prompt\"\n é";
  manifest.tokens = {1, 0, 2147483647, 5};
  manifest.prompt_tokens = 3;
  manifest.sampling = {{"nested", {{"a", {1, 2}}}}, {"temperature", 0.5}};
  manifest.checkpoints = {{"embedding", DType::kF32, 64, 0}, {"logits", DType::kBF16, 10, 151936}};
  manifest.steps = {{0, 0, 3, "000000.safetensors"}, {2, 7, 1, "000001.safetensors"}};
  manifest.dropped_steps = 1;
  manifest.notes = {"a note", ""};
  manifest.unmapped = {"norm-{N}"};
  manifest.complete = true;
  return manifest;
}

TEST(Manifest, RoundTrip) {
  const Manifest wanted = example();
  const auto got = parse_manifest(to_json(wanted), "m");
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(got->engine.name, wanted.engine.name);
  EXPECT_EQ(got->engine.version, wanted.engine.version);
  EXPECT_EQ(got->engine.device, wanted.engine.device);
  EXPECT_EQ(got->engine.precision.compute, "f32");
  EXPECT_EQ(got->engine.precision.activations, "q8_0");
  EXPECT_EQ(got->engine.precision.kv, std::nullopt);
  EXPECT_EQ(got->engine.precision.weights, "int8:row");
  EXPECT_EQ(got->engine.precision.sums, "f16");
  EXPECT_EQ(got->model.file, wanted.model.file);
  EXPECT_EQ(got->model.path, wanted.model.path);
  EXPECT_EQ(got->forward.context_length, 4096);
  EXPECT_FALSE(got->forward.context_grows);
  EXPECT_EQ(got->forward.rope_base, 5e5);
  EXPECT_EQ(got->forward.rope_scale, 0.25);
  EXPECT_EQ(got->model.architecture, wanted.model.architecture);
  EXPECT_EQ(got->model.fingerprint, wanted.model.fingerprint);
  EXPECT_EQ(got->model.quantization, wanted.model.quantization);
  EXPECT_EQ(got->prompt, wanted.prompt);
  EXPECT_EQ(got->tokens, wanted.tokens);
  EXPECT_EQ(got->prompt_tokens, 3);
  EXPECT_EQ(got->sampling, wanted.sampling);
  ASSERT_EQ(got->checkpoints.size(), 2u);
  EXPECT_EQ(got->checkpoints[1].name, "logits");
  EXPECT_EQ(got->checkpoints[1].dtype, DType::kBF16);
  EXPECT_EQ(got->checkpoints[1].width, 10);
  EXPECT_EQ(got->checkpoints[1].full_width, 151936);
  EXPECT_EQ(got->checkpoints[0].full_width, 0);
  ASSERT_EQ(got->steps.size(), 2u);
  EXPECT_EQ(got->steps[1].index, 2);
  EXPECT_EQ(got->steps[1].first_position, 7);
  EXPECT_EQ(got->steps[1].tokens, 1);
  EXPECT_EQ(got->steps[1].shard, "000001.safetensors");
  EXPECT_EQ(got->dropped_steps, 1);
  EXPECT_EQ(got->notes, wanted.notes);
  EXPECT_EQ(got->unmapped, wanted.unmapped);
  EXPECT_TRUE(got->complete);
  EXPECT_EQ(to_json(*got), to_json(wanted));
}

TEST(Manifest, AContextMayGrow) {
  Manifest wanted = example();
  wanted.forward = {std::nullopt, true, std::nullopt, std::nullopt};
  const auto got = parse_manifest(to_json(wanted), "m");
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_TRUE(got->forward.context_grows);
  EXPECT_FALSE(got->forward.context_length);
  EXPECT_FALSE(got->forward.rope_base);
}

TEST(Manifest, OnlyWhatIsNeededMustBeThere) {
  const auto got = parse_manifest(
      R"({"format":"lockstep-trace","version":1,"complete":false,"engine":{"name":"x"},)"
      R"("checkpoints":[],"steps":[],"somebody's":{"own":1}})",
      "m");
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_FALSE(got->complete);
  EXPECT_TRUE(got->tokens.empty());
}

// One change to a good manifest each, and the message about it.
TEST(Manifest, RefusesWhatIsWrong) {
  struct Bad {
    const char* pointer;
    const char* value;  // JSON; empty: removed
    const char* message;
  };
  const Bad bad[] = {
      {"/forward/context_length", "0",
       "m: forward.context_length: found 0, expected a whole number from 1 to 1099511627776"},
      {"/forward/context_length", "\"some\"",
       "m: forward.context_length: found \"some\", expected a number of positions, or \"positions "
       "so far\""},
      {"/forward/rope_base", "-1", "m: forward.rope_base: found -1, expected a number above 0"},
      {"/forward/rope_scale", "\"x\"", "m: forward.rope_scale: found \"x\", expected a number"},
      {"/model/path", "7", "m: model.path: found 7, expected a string"},
      {"/format", "\"gguf\"", "m: format: found \"gguf\", expected 'lockstep-trace'"},
      {"/format", "", "m: format: found nothing, expected a string"},
      {"/version", "2", "m: version: found 2, expected a whole number from 1 to 1"},
      {"/complete", "1", "m: complete: found 1, expected true or false"},
      {"/complete", "", "m: complete: found nothing, expected true or false"},
      {"/engine", "", "m: engine.name: found nothing, expected a string"},
      {"/engine/precision/compute", "\"q8_0\"",
       "m: engine.precision.compute: found \"q8_0\", expected one of f64, f32, tf32, f16, bf16"},
      {"/engine/precision/kv", "\"e4m3:rows\"",
       "m: engine.precision.kv: found \"e4m3:rows\", expected one of f64, f32, f16, bf16, e4m3, "
       "e5m2, e4m3:S, e5m2:S, int8:S with S tensor, row or block1 to block65536"},
      {"/engine/precision/weights", "1", "m: engine.precision.weights: found 1, expected a string"},
      {"/engine/precision/sums", "\"bf16\"",
       "m: engine.precision.sums: found \"bf16\", expected one of f32, f16"},
      {"/tokens", "{}", "m: tokens: found an object of 0, expected an array"},
      {"/tokens/1", "-1", "m: tokens[1]: found -1, expected a whole number from 0 to 2147483647"},
      {"/tokens/1", "1.5", "m: tokens[1]: found 1.5, expected a whole number from 0 to 2147483647"},
      {"/n_prompt", "5", "m: n_prompt: found 5, expected a whole number from 0 to 4"},
      {"/checkpoints/0/dtype", "\"i8\"",
       "m: checkpoints[0].dtype: found \"i8\", expected f64, f32, f16 or bf16"},
      {"/checkpoints/0/width", "0",
       "m: checkpoints[0].width: found 0, expected a whole number from 1 to 1099511627776"},
      {"/checkpoints/1/full_width", "9",
       "m: checkpoints[1].full_width: found 9, expected a whole number from 10 to 1099511627776"},
      {"/checkpoints/1/name", "\"embedding\"",
       "m: checkpoints[1].name: found \"embedding\", expected a name that no other checkpoint has"},
      {"/steps", "3", "m: steps: found 3, expected an array"},
      {"/steps/0/n_tokens", "9223372036854775807",
       "m: steps[0].n_tokens: found 9223372036854775807, expected a whole number from 1 to "
       "16777216"},
      {"/steps/0/n_tokens", "18446744073709551615",
       "m: steps[0].n_tokens: found 18446744073709551615, expected a whole number from 1 to "
       "16777216"},
      {"/steps/0/shard", "\"../secret\"",
       "m: steps[0].shard: found \"../secret\", expected the name of a file in the trace's folder"},
      {"/steps/0/shard", "\"\"",
       "m: steps[0].shard: found \"\", expected the name of a file in the trace's folder"},
      {"/steps/0/shard", "\".hidden\"",
       "m: steps[0].shard: found \".hidden\", expected the name of a file in the trace's folder"},
      {"/steps/1/first_pos", "2", "m: step 2 starts at position 2, which an earlier step has"},
      {"/steps/1/index", "0", "m: two steps have the index 0"},
      {"/notes", "\"x\"", "m: notes: found \"x\", expected an array"},
      {"/unmapped/0", "1", "m: unmapped[0]: found 1, expected a string"},
      {"/dropped_steps", "-1",
       "m: dropped_steps: found -1, expected a whole number from 0 to 1099511627776"},
  };
  for (const Bad& item : bad) {
    SCOPED_TRACE(fmt::format("{} {}", item.pointer, item.value));
    json document = json::parse(to_json(example()));
    const json::json_pointer pointer(item.pointer);
    if (*item.value == '\0')
      document.at(pointer.parent_pointer()).erase(pointer.back());
    else
      document[pointer] = json::parse(item.value);
    const auto got = parse_manifest(document.dump(), "m");
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().message, item.message);
  }
}

TEST(Manifest, RefusesWhatIsNoJsonObject) {
  const auto message = [](std::string_view text) {
    const auto got = parse_manifest(text, "m");
    return got.ok() ? "no error" : got.error().message;
  };
  EXPECT_EQ(message("[]"), "m: document: found an array of 0, expected an object");
  EXPECT_EQ(message(std::string(200, '[') + std::string(200, ']')), "m: nested more than 64 deep");
  const std::string whole = to_json(example());
  for (const std::string name :
       {"checkpoints", "steps", "tokens", "complete", "dtype", "first_pos"}) {
    std::string twice = whole;
    twice.insert(twice.find('"' + name + '"'), '"' + name + "\": null, ");
    EXPECT_EQ(message(twice), "m: the name '" + name + "' stands twice in an object");
  }
  for (size_t length = 0; length + 2 < whole.size(); ++length)
    EXPECT_TRUE(message(whole.substr(0, length)).starts_with("m: no valid JSON: ")) << length;
}

TEST(Manifest, NamesOfPrecision) {
  const auto known = [](std::string_view field, std::string_view name) {
    detail::PrecisionName found;
    return detail::read_precision_name(field, name, &found);
  };
  for (const char* field : {"compute", "activations", "kv", "weights"}) {
    for (const char* name : {"f64", "f32", "f16", "bf16"}) EXPECT_TRUE(known(field, name));
    for (const char* name : {"",
                             "f8",
                             "F32",
                             "f32 ",
                             "f32:row",
                             "int8",
                             "int8:",
                             "e4m3:",
                             "q8",
                             "e4m3:block",
                             "e4m3:block0",
                             "e4m3:block08",
                             "e4m3:block-8",
                             "e4m3:block65537",
                             "e4m3:block99999999999999999999",
                             "e4m3:row:row",
                             "tf32:row",
                             "by_weight:row",
                             ":row",
                             "e4m3 :row"})
      EXPECT_FALSE(known(field, name)) << field << " " << name;
    const bool small = std::string_view(field) != "compute";
    for (const char* name : {"e4m3", "e5m2", "e4m3:tensor", "e5m2:row", "int8:row", "int8:tensor",
                             "int8:block1", "e4m3:block128", "e5m2:block65536"})
      EXPECT_EQ(known(field, name), small) << field << " " << name;
  }
  for (const char* name : {"q8_0", "q8_1", "q8_k", "i16", "by_weight"}) {
    EXPECT_TRUE(known("activations", name));
    for (const char* field : {"compute", "kv", "weights", "", "activation"})
      EXPECT_FALSE(known(field, name));
  }
  EXPECT_TRUE(known("compute", "tf32"));
  EXPECT_TRUE(known("activations", "tf32"));
  EXPECT_TRUE(known("weights", "tf32"));
  EXPECT_FALSE(known("kv", "tf32"));
  for (const char* name : {"f16", "f32"}) EXPECT_TRUE(known("sums", name));
  for (const char* name : {"f64", "bf16", "tf32", "e4m3", "q8_0", "f16:row"})
    EXPECT_FALSE(known("sums", name));
  detail::PrecisionName name;
  ASSERT_TRUE(detail::read_precision_name("kv", "e5m2:block12", &name));
  EXPECT_EQ(name.type, "e5m2");
  EXPECT_EQ(name.scale, detail::Scale::kBlock);
  EXPECT_EQ(name.block, 12);
}

}  // namespace
}  // namespace lockstep::trace
