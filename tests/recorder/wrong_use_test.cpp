// lockstep/recorder.h: what is wrong is said, ends the recording alone, and leaves what was before.
#include <fstream>
#include <functional>

#include "recorder/fixture.h"

namespace lockstep {
namespace {

TEST_F(RecorderTest, WhatIsWrongEndsTheRecordingAndKeepsWhatWasBefore) {
  const float x[12] = {};
  struct Case {
    std::function<bool(TraceRecorder&)> wrong;
    const char* message;
  };
  const auto values = [&](NumberType type, std::vector<int64_t> shape,
                          std::vector<int64_t> strides = {}) {
    return Values{x, type, std::move(shape), std::move(strides)};
  };
  constexpr NumberType kF32 = NumberType::kF32;
  using R = TraceRecorder;
  const Case cases[] = {
      {[&](R& r) { return r.begin_step(4, 1); }, "begin_step: step 1 is still open"},
      {[&](R& r) { return r.finish(); }, "finish: step 1 is still open"},
      {[&](R& r) { return r.end_step(); }, "end_step: step 1 has no values"},
      {[&](R& r) { return r.end_step(false) && r.end_step(); }, "end_step: no step is open"},
      {[&](R& r) { return r.end_step(false) && r.record("x", x, 1); },
       "x: recorded outside of a step"},
      {[&](R& r) { return r.end_step(false) && r.begin_step(1, 1); },
       "begin_step: found position 1, expected 2 to 16777215"},
      {[&](R& r) { return r.end_step(false) && r.begin_step(-1, 1); },
       "begin_step: found position -1, expected 2 to 16777215"},
      {[&](R& r) { return r.end_step(false) && r.begin_step(2, 0); },
       "begin_step: found 0 tokens, expected 1 to 16777214"},
      {[&](R& r) { return r.end_step(false) && r.begin_step(2, INT64_MAX); },
       "begin_step: found 9223372036854775807 tokens, expected 1 to 16777214"},
      {[&](R& r) { return r.end_step(false) && r.finish() && r.begin_step(9, 1); },
       "begin_step: the trace is finished"},
      {[&](R& r) { return r.add_token(-1); }, "add_token: found -1, expected 0 or more"},
      {[&](R& r) { return r.record("", x, 1); },
       "found a name that is not 1 to 255 bytes of printable UTF-8"},
      {[&](R& r) { return r.record(std::string(256, 'x'), x, 1); },
       "found a name that is not 1 to 255 bytes of printable UTF-8"},
      {[&](R& r) { return r.record("a\nb", x, 1); },
       "found a name that is not 1 to 255 bytes of printable UTF-8"},
      {[&](R& r) { return r.record("a\xFF", x, 1); },
       "found a name that is not 1 to 255 bytes of printable UTF-8"},
      {[&](R& r) { return r.record("x", static_cast<const float*>(nullptr), 1); },
       "x: found a null pointer"},
      {[&](R& r) {
         return r.record("x", values(static_cast<NumberType>(9), {2, 2}));
       },
       "x: found an unknown type of numbers"},
      {[&](R& r) { return r.record("x", x, 0); },
       "x: shape [2,0]: expected sizes from 1 on, and 2^40 bytes at most"},
      {[&](R& r) { return r.record("x", x, -5); },
       "x: shape [2,-5]: expected sizes from 1 on, and 2^40 bytes at most"},
      {[&](R& r) { return r.record("x", x, INT64_MAX); },
       "x: shape [2,9223372036854775807]: expected sizes from 1 on, and 2^40 bytes at most"},
      {[&](R& r) {
         return r.record("x", values(kF32, {1 << 20, 2, 1 << 20}));
       },
       "x: shape [1048576,2,1048576]: expected sizes from 1 on, and 2^40 bytes at most"},
      {[&](R& r) { return r.record("x", values(kF32, {})); },
       "x: shape []: expected 1 to 3 dimensions"},
      {[&](R& r) {
         return r.record("x", values(kF32, {1, 1, 2, 1}));
       },
       "x: shape [1,1,2,1]: expected 1 to 3 dimensions"},
      {[&](R& r) {
         return r.record("x", values(kF32, {2, 1}, {4}));
       },
       "x: shape [2,1]: found the strides [4]"},
      {[&](R& r) {
         return r.record("x", values(kF32, {2, 2}, {INT64_MIN, 4}));
       },
       "x: strides [-9223372036854775808,4]: reach beyond 2^40 bytes"},
      {[&](R& r) {
         return r.record("x", values(kF32, {3, 1}));
       },
       "x: shape [3,1] has 3 rows in a step of 2 tokens"},
      {[&](R& r) { return r.record("x", values(kF32, {4})); },
       "x: shape [1,4] has 1 rows in a step of 2 tokens"},
      {[&](R& r) {
         return r.record("logits", values(kF32, {3, 1}));
       },
       "logits: shape [3,1] has 3 rows in a step of 2 tokens"},
      {[&](R& r) {
         return r.record("x", values(kF32, {2, 3, 1}));
       },
       "x: shape [2,3,1] has 3 rows in a step of 2 tokens"},
      {[&](R& r) { return r.record("x", x, 1) && r.record("x", x, 1); },
       "x: recorded twice in a step"},
      {[&](R& r) { return r.record("known", x, 3); },
       "known: found f32 and width 3, before it had f32 and width 2"},
      {[&](R& r) {
         return r.record("known", values(NumberType::kBF16, {2, 2}));
       },
       "known: found bf16 and width 2, before it had f32 and width 2"},
  };
  for (const Case& item : cases) {
    SCOPED_TRACE(item.message);
    again();
    {
      TraceRecorder recorder(folder(), plain_info());
      recorder.begin_step(0, 2);
      recorder.record("known", x, 2);
      recorder.end_step();
      ASSERT_TRUE(recorder.begin_step(2, 2));
      EXPECT_FALSE(item.wrong(recorder));
      EXPECT_FALSE(recorder.ok());
      EXPECT_EQ(recorder.error(), folder() + ": " + item.message);
      // Nothing more is taken, and the first message stays.
      EXPECT_FALSE(recorder.begin_step(100, 1));
      EXPECT_FALSE(recorder.record("x", x, 1));
      EXPECT_FALSE(recorder.end_step());
      EXPECT_FALSE(recorder.add_token(1));
      EXPECT_FALSE(recorder.flush());
      EXPECT_FALSE(recorder.finish());
      EXPECT_EQ(recorder.error(), folder() + ": " + item.message);
    }
    const trace::Trace trace = open();
    EXPECT_EQ(trace.manifest().steps.size(), 1u);
    EXPECT_EQ(trace.manifest().complete, std::string(item.message).ends_with("is finished"));
    expect_value(trace, 0, "known", Bytes(16));
  }
}

// Readers refuse descriptions of more than 100 MB.
TEST_F(RecorderTest, AStepHasSoManyValues) {
  const float x[1] = {};
  TraceRecorder recorder(folder(), plain_info());
  recorder.begin_step(0, 1);
  for (int i = 0; i < 200'000; ++i) recorder.record(std::to_string(i), x, 1);
  ASSERT_TRUE(recorder.ok()) << recorder.error();
  EXPECT_FALSE(recorder.record("one more", x, 1));
  EXPECT_EQ(recorder.error(), folder() + ": one more: a trace has at most 200000 checkpoints");
}

TEST_F(RecorderTest, WhatIsWrongAtTheStart) {
  const auto error_of = [&](const TraceInfo& info) {
    again();
    const TraceRecorder recorder(folder(), info);
    EXPECT_FALSE(fs::exists(folder()));
    EXPECT_FALSE(recorder.ok());
    return recorder.error().substr(std::min(recorder.error().size(), folder().size()));
  };
  TraceInfo info = plain_info();
  info.engine = "";
  EXPECT_EQ(error_of(info), ": the engine has no name");
  info = plain_info();
  info.compute = "q8_0";
  EXPECT_EQ(error_of(info), ": compute: found 'q8_0', expected one of f64, f32, tf32, f16, bf16");
  info = plain_info();
  info.activations = "f64, f32";
  EXPECT_TRUE(error_of(info).starts_with(": activations: found 'f64, f32', expected one of"));
  info = plain_info();
  info.kv = "?";
  EXPECT_TRUE(error_of(info).starts_with(": kv: found '?'"));
  info = plain_info();
  info.weights = "int8";
  EXPECT_EQ(error_of(info),
            ": weights: found 'int8', expected one of f64, f32, tf32, f16, bf16, e4m3, e5m2, "
            "e4m3:S, e5m2:S, int8:S with S tensor, row or block1 to block65536");
  info = plain_info();
  info.tokens = {-3};
  EXPECT_EQ(error_of(info), ": tokens: found -3, expected 0 or more");
  info = plain_info();
  info.prompt_tokens = 4;
  EXPECT_EQ(error_of(info), ": prompt_tokens: found 4 of 3 tokens");

  fs::create_directories(folder());
  std::ofstream(folder() + "/mine") << "precious";
  EXPECT_EQ(TraceRecorder(folder(), plain_info()).error(),
            folder() + ": the folder is not empty; a trace is never written over");
  EXPECT_EQ(files_of(folder()), std::vector<std::string>{"mine"});
  EXPECT_EQ(TraceRecorder(folder() + "/mine", plain_info()).error(),
            folder() + "/mine: cannot make the folder: Not a directory");
}

TEST_F(RecorderTest, AFolderThatGoesAwayIsAnError) {
  const float x[1] = {};
  TraceRecorder recorder(folder(), plain_info());
  again();
  recorder.begin_step(0, 1);
  recorder.record("x", x, 1);
  EXPECT_FALSE(recorder.end_step());
  EXPECT_EQ(recorder.error(),
            folder() + ": cannot write 000000.safetensors: No such file or directory");
  EXPECT_FALSE(recorder.finish());
}

}  // namespace
}  // namespace lockstep
