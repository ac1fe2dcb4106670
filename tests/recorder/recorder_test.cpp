// lockstep/recorder.h: whatever it writes, our reader gives back bit for bit.
#include <fstream>
#include <stdexcept>
#include <thread>

#include <nlohmann/json.hpp>

#include "recorder/fixture.h"

namespace lockstep {
namespace {

constexpr NumberType kTypes[] = {NumberType::kF64, NumberType::kF32, NumberType::kF16,
                                 NumberType::kBF16};

// A value in a buffer of exactly the bytes that its strides reach, so that AddressSanitizer sees a
// byte too many, and what it should come back as.
struct Strided {
  Values values;
  Bytes buffer;
  Bytes wanted;
};

TEST_F(RecorderTest, AnyStridesTypesAndShapesComeBackBitForBit) {
  constexpr int kSteps = 60;
  std::vector<std::vector<Strided>> steps;
  int64_t position = 0;
  {
    TraceRecorder recorder(folder(), plain_info());
    for (int s = 0; s < kSteps; ++s) {
      auto& step = steps.emplace_back();
      const int64_t tokens = 1 + random_.below(7);
      ASSERT_TRUE(recorder.begin_step(position, tokens)) << recorder.error();
      position += tokens + random_.below(3);
      for (int v = 0; v < 8; ++v) {
        Strided& item = step.emplace_back();
        item.values.type = kTypes[v % 4];
        const int64_t size = detail::find_type(item.values.type)->bytes;
        item.values.shape = {tokens, 5 + v};
        if (v >= 4) item.values.shape = {3 + v, tokens, 1 + random_.below(9)};
        // A random order of the dimensions in memory, gaps, steps backwards, repeated rows.
        const size_t rank = item.values.shape.size();
        std::vector<size_t> order(rank);
        for (size_t d = 0; d < rank; ++d) order[d] = d;
        for (size_t d = rank; d-- > 1;)
          std::swap(order[d],
                    order[static_cast<size_t>(random_.below(static_cast<int64_t>(d) + 1))]);
        std::vector<int64_t> strides(rank);
        int64_t next = size;
        int64_t first = 0;  // of the buffer's bytes before the first number
        for (const size_t d : order) {
          const int64_t extent = item.values.shape[d];
          strides[d] = random_.below(8) == 0 ? 0 : next + size * random_.below(2);
          next = std::max(next, strides[d] * extent);
          if (random_.below(4) == 0) {
            strides[d] = -strides[d];
            first += -strides[d] * (extent - 1);
          }
        }
        int64_t end = first + size;
        for (size_t d = 0; d < rank; ++d)
          end += std::max<int64_t>(0, strides[d]) * (item.values.shape[d] - 1);
        item.buffer = random_bytes(static_cast<size_t>(end));
        std::vector<int64_t> shape = item.values.shape;
        if (rank == 2) {
          shape.insert(shape.begin(), 1);
          strides.insert(strides.begin(), 0);
        }
        for (int64_t a = 0; a < shape[0]; ++a)
          for (int64_t b = 0; b < shape[1]; ++b)
            for (int64_t c = 0; c < shape[2]; ++c) {
              const auto* from =
                  item.buffer.data() + first + a * strides[0] + b * strides[1] + c * strides[2];
              item.wanted.insert(item.wanted.end(), from, from + size);
            }
        if (rank == 2) strides.erase(strides.begin());
        item.values.strides_bytes = strides;
        item.values.data = item.buffer.data() + first;
        ASSERT_TRUE(recorder.record(fmt::format("v{}", v), item.values)) << recorder.error();
        Bytes().swap(item.buffer);  // the engine's memory is gone
      }
      ASSERT_TRUE(recorder.end_step()) << recorder.error();
    }
    ASSERT_TRUE(recorder.finish()) << recorder.error();
  }
  const trace::Trace trace = open();
  EXPECT_TRUE(trace.manifest().complete);
  ASSERT_EQ(trace.manifest().steps.size(), steps.size());
  for (size_t s = 0; s < steps.size(); ++s)
    for (size_t v = 0; v < steps[s].size(); ++v) {
      expect_value(trace, s, fmt::format("v{}", v), steps[s][v].wanted);
      EXPECT_EQ(trace.value(s, fmt::format("v{}", v))->shape, steps[s][v].values.shape);
    }
}

TEST_F(RecorderTest, TheManifestSaysWhatWasGiven) {
  TraceInfo info;
  info.engine = "an \"engine\" \\ with\n\x01 \xF0\x9F\x92\xA7 and \xFF\xC0\x80\xED\xA0\x80";
  info.version = "1.2";
  info.device = "gpu";
  info.compute = "bf16";
  info.activations = "q8_k";
  info.kv = "f16";
  info.weights = "e4m3:block128";
  info.sums = "f16";
  info.model_file = "m.gguf";
  info.model_path = "/some/\"where\"/m.gguf";
  info.context_length = 64;
  info.rope_base = 1e6;
  info.architecture = "llama";
  info.fingerprint = "0123";
  info.quantization = "Q4_K_M";
  info.prompt = std::string("a\0b", 3) + "\x7F</script>";
  info.tokens = {5, 0, 2147483647};
  info.prompt_tokens = 2;
  info.sampling = {{"temperature", 0.7}, {"top_k", 40}, {"odd \"key\"", 1e-300}, {"none", NAN}};
  info.notes = {"a \"note\"", "\xFF"};
  info.unmapped = {"node-{N}"};
  const float row[4] = {1, 2, 3, 4};
  {
    TraceRecorder recorder(folder(), info);
    recorder.begin_step(0, 2);
    recorder.record("embedding", row, 2);
    recorder.record("logits", {row, NumberType::kF32, {4}, {}});
    recorder.end_step();
    recorder.add_token(9);
    recorder.begin_step(7, 1);  // positions may be left out
    recorder.record("logits", row, 4);
    recorder.end_step();
    ASSERT_TRUE(recorder.finish()) << recorder.error();
    EXPECT_TRUE(recorder.finish());
    EXPECT_TRUE(recorder.flush());
    EXPECT_TRUE(recorder.ok());
  }
  const trace::Manifest manifest = open().manifest();
  EXPECT_EQ(manifest.engine.name,
            "an \"engine\" \\ with\n\x01 \xF0\x9F\x92\xA7 and \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(manifest.model.path, "/some/\"where\"/m.gguf");
  EXPECT_EQ(manifest.forward.context_length, 64);
  EXPECT_EQ(manifest.forward.rope_base, 1e6);
  EXPECT_FALSE(manifest.forward.rope_scale);
  EXPECT_EQ(manifest.engine.version, "1.2");
  EXPECT_EQ(manifest.engine.device, "gpu");
  EXPECT_EQ(manifest.engine.precision.compute, "bf16");
  EXPECT_EQ(manifest.engine.precision.activations, "q8_k");
  EXPECT_EQ(manifest.engine.precision.kv, "f16");
  EXPECT_EQ(manifest.engine.precision.weights, "e4m3:block128");
  EXPECT_EQ(manifest.engine.precision.sums, "f16");
  EXPECT_EQ(manifest.model.file, "m.gguf");
  EXPECT_EQ(manifest.model.architecture, "llama");
  EXPECT_EQ(manifest.model.fingerprint, "0123");
  EXPECT_EQ(manifest.model.quantization, "Q4_K_M");
  EXPECT_EQ(manifest.prompt, info.prompt);
  EXPECT_EQ(manifest.tokens, (std::vector<int32_t>{5, 0, 2147483647, 9}));
  EXPECT_EQ(manifest.prompt_tokens, 2);
  EXPECT_EQ(manifest.sampling["temperature"], 0.7);
  EXPECT_EQ(manifest.sampling["top_k"], 40);
  EXPECT_EQ(manifest.sampling["odd \"key\""], 1e-300);
  EXPECT_TRUE(manifest.sampling["none"].is_null());
  ASSERT_EQ(manifest.checkpoints.size(), 2u);
  EXPECT_EQ(manifest.checkpoints[1].name, "logits");
  EXPECT_EQ(manifest.checkpoints[1].width, 4);
  ASSERT_EQ(manifest.steps.size(), 2u);
  EXPECT_EQ(manifest.steps[1].first_position, 7);
  std::ifstream file(folder() + "/manifest.json");
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json["notes"], nlohmann::json({"a \"note\"", "\xEF\xBF\xBD"}));
  EXPECT_EQ(json["unmapped"], nlohmann::json::array({"node-{N}"}));
}

TEST_F(RecorderTest, HostileTextsAreReadBack) {
  for (int attempt = 0; attempt < 200; ++attempt) {
    again();
    TraceInfo info = plain_info();
    const Bytes bytes = random_bytes(1 + static_cast<size_t>(random_.below(40)));
    info.engine.assign(bytes.begin(), bytes.end());
    info.prompt = info.model_file = info.version = info.engine;
    info.sampling = {{info.engine, 1}};
    TraceRecorder recorder(folder(), info);
    ASSERT_TRUE(recorder.finish()) << recorder.error();
    EXPECT_EQ(open().manifest().model.file, open().manifest().prompt);
  }
}

TEST_F(RecorderTest, ThreadsRecordAtTheSameTime) {
  constexpr int kThreads = 8;
  constexpr int kNames = 25;
  constexpr int kSteps = 20;
  const auto number = [](int step, int thread, int i, int64_t j) {
    return static_cast<float>(((step * 8 + thread) * 25 + i) * 100 + j);
  };
  {
    TraceRecorder recorder(folder(), plain_info());
    for (int step = 0; step < kSteps; ++step) {
      recorder.begin_step(step, 1);
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
          for (int i = 0; i < kNames; ++i) {
            std::vector<float> row(33);
            for (size_t j = 0; j < row.size(); ++j)
              row[j] = number(step, t, i, static_cast<int64_t>(j));
            recorder.record(fmt::format("{}.{}", t, i), row.data(), 33);
            std::ranges::fill(row, -1.0f);
          }
          recorder.add_token(t);
        });
      for (std::thread& thread : threads) thread.join();
      recorder.end_step();
    }
    ASSERT_TRUE(recorder.finish()) << recorder.error();
  }
  const trace::Trace trace = open();
  EXPECT_EQ(trace.manifest().checkpoints.size(), static_cast<size_t>(kThreads * kNames));
  EXPECT_EQ(trace.manifest().tokens.size(), static_cast<size_t>(3 + kThreads * kSteps));
  for (int step = 0; step < kSteps; ++step)
    for (int t = 0; t < kThreads; ++t)
      for (int i = 0; i < kNames; ++i) {
        const auto row = trace.row(fmt::format("{}.{}", t, i), step);
        ASSERT_TRUE(row);
        for (int64_t j = 0; j < 33; ++j)
          ASSERT_EQ(row->at(0, j), static_cast<double>(number(step, t, i, j)));
      }
}

// Memory that only the copy function may read: "addresses" are offsets.
TEST_F(RecorderTest, ValuesOfADevice) {
  const Bytes device = random_bytes(240);
  const char* base = reinterpret_cast<const char*>(uintptr_t{0x7f0000000000});
  const CopyToHost copy = [&](void* host, const void* from, size_t bytes) -> std::string {
    const auto offset = static_cast<size_t>(static_cast<const char*>(from) - base);
    if (offset + bytes > device.size()) return "read beyond the device's memory";
    std::memcpy(host, device.data() + offset, bytes);
    return "";
  };
  Bytes column;
  for (size_t i = 0; i < 30; ++i)
    column.insert(column.end(), &device[i * 8 + 4], &device[i * 8 + 4] + 4);
  {
    TraceRecorder recorder(folder(), plain_info());
    recorder.begin_step(0, 3);
    recorder.record("dense", {base, NumberType::kF16, {3, 40}, {}}, copy);
    recorder.record("column", {base + 4, NumberType::kF32, {3, 10}, {80, 8}}, copy);
    recorder.end_step();
    ASSERT_TRUE(recorder.finish()) << recorder.error();
  }
  expect_value(open(), 0, "dense", device);
  expect_value(open(), 0, "column", column);

  const auto failure = [&](const Values& values, const CopyToHost& how) {
    again();
    TraceRecorder recorder(folder(), plain_info());
    recorder.begin_step(0, 3);
    EXPECT_FALSE(recorder.record("x", values, how));
    return recorder.error().substr(folder().size());
  };
  EXPECT_EQ(failure({base + 4, NumberType::kF16, {3, 40}, {}}, copy),
            ": x: cannot copy: read beyond the device's memory");
  EXPECT_EQ(failure({base, NumberType::kF16, {3, 40}, {80, -2}}, copy),
            ": x: cannot copy: found negative strides in the memory of a device");
  EXPECT_EQ(failure({base, NumberType::kF16, {3, 40}, {}},
                    [](void*, const void*, size_t) -> std::string {
                      throw std::runtime_error("device lost");
                    }),
            ": x: cannot copy: device lost");
  EXPECT_EQ(failure({base, NumberType::kF16, {3, 40}, {}},
                    [](void*, const void*, size_t) -> std::string { throw 7; }),
            ": x: cannot copy: an unknown exception");
}

#if defined(TEST_CUDA)  // built with it, not only found
TEST_F(RecorderTest, ValuesOfAGpu) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    const float x[3] = {};
    TraceRecorder recorder(folder(), plain_info());
    recorder.begin_step(0, 1);
    EXPECT_FALSE(recorder.record("x", {x, NumberType::kF32, {1, 3}, {}}, copy_from_cuda()));
    EXPECT_TRUE(recorder.error().starts_with(folder() + ": x: cannot copy: ")) << recorder.error();
    GTEST_SKIP() << "no NVIDIA GPU";
  }
  const Bytes bytes = random_bytes(5 * 1000 * 8);
  char* device = nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), bytes.size()), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  TraceRecorder recorder(folder(), plain_info());
  recorder.begin_step(0, 5);
  cudaMemsetAsync(device, 0xFF, bytes.size(), stream);
  cudaMemcpyAsync(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream);
  recorder.record("dense", {device, NumberType::kF64, {5, 1000}, {}}, copy_from_cuda(stream));
  recorder.record("strided", {device + 2, NumberType::kBF16, {5, 999}, {8000, 8}},
                  copy_from_cuda(stream));
  cudaFree(device);
  cudaStreamDestroy(stream);
  recorder.end_step();
  ASSERT_TRUE(recorder.finish()) << recorder.error();
  Bytes strided;
  for (size_t row = 0; row < 5; ++row)
    for (size_t i = 0; i < 999; ++i)
      for (size_t b = 0; b < 2; ++b) strided.push_back(bytes[row * 8000 + 2 + i * 8 + b]);
  expect_value(open(), 0, "dense", bytes);
  expect_value(open(), 0, "strided", strided);
}
#else
TEST_F(RecorderTest, ValuesOfAGpu) {
  GTEST_SKIP() << "no NVIDIA GPU: built without CUDA";
}
#endif

TEST_F(RecorderTest, LargeStepsGoToTheDiskAsTheyCome) {
  TraceInfo info = plain_info();
  info.memory_bytes = 1000;
  std::vector<std::vector<Bytes>> wanted;
  {
    TraceRecorder recorder(folder(), info);
    for (int step = 0; step < 12; ++step) {
      const int64_t tokens = step % 3 == 2 ? 20 : 1;  // 20: beyond the memory after 3 values
      recorder.begin_step(step * 20, tokens);
      auto& values = wanted.emplace_back();
      for (int v = 0; v < 7; ++v) {
        values.push_back(random_bytes(static_cast<size_t>(tokens * 5 * 4)));
        recorder.record(fmt::format("v{}", v),
                        {values.back().data(), NumberType::kF32, {tokens, 5}, {}});
      }
      if (step == 5) {  // this forward pass failed
        EXPECT_TRUE(recorder.end_step(false));
        wanted.pop_back();
        const auto names = files_of(folder());
        for (const std::string& name : names) EXPECT_FALSE(name.ends_with(".part")) << name;
      } else {
        EXPECT_TRUE(recorder.end_step()) << recorder.error();
      }
    }
    recorder.begin_step(400, 20);  // never ends
    for (int v = 0; v < 7; ++v)
      recorder.record(fmt::format("v{}", v), {wanted[2][0].data(), NumberType::kF32, {20, 5}, {}});
  }
  for (const std::string& name : files_of(folder())) EXPECT_FALSE(name.ends_with(".part")) << name;
  const trace::Trace trace = open();
  EXPECT_FALSE(trace.manifest().complete);
  ASSERT_EQ(trace.manifest().steps.size(), wanted.size());
  for (size_t s = 0; s < wanted.size(); ++s)
    for (size_t v = 0; v < 7; ++v) expect_value(trace, s, fmt::format("v{}", v), wanted[s][v]);
}

}  // namespace
}  // namespace lockstep
