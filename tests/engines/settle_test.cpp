// Products are judged exactly only where that can matter. Here all rows are, and what is told of a
// checkpoint must be the same.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lab.h"
#include "parity/forward.h"
#include "parity/replay.h"
#include "rewrite.h"
#include "trace/checkpoints.h"

namespace lockstep::engines {
namespace {

using parity::OwnError;
using parity::Replay;

struct Told {
  int64_t worst_position = -1;
  double worst_ratio = -1;
  double expected = -1;
  std::vector<int64_t> defects;
};

Told told(const std::vector<OwnError>& rows) {
  Told out;
  bool non_finite = false;
  for (const OwnError& own : rows) {
    if (!own.settled) continue;
    if (own.defect()) out.defects.push_back(own.position);
    if (out.worst_position >= 0 && own.non_finite <= non_finite && own.ratio() <= out.worst_ratio)
      continue;
    out = {own.position, own.ratio(), own.expected, std::move(out.defects)};
    non_finite = own.non_finite;
  }
  return out;
}

class SettleTest : public testing::TestWithParam<const char*> {
 protected:
  SettleTest()
      : lab_(Lab::forged({.arch = "qwen2",
                          .layers = 2,
                          .width = 256,
                          .heads = 4,
                          .kv_heads = 2,
                          .feed_forward = 320,
                          .vocabulary = 67,
                          .type = GetParam(),
                          .seed = 5})) {
    job_.prompt = 23;
    job_.tokens = random_tokens(11, 29, 67);
    program_ = lab_.program(job_);
  }

  // `at_a_time`: numbers that are judged together; 0: as many as always.
  void expect_same(const trace::Trace& trace, const std::string& what, int64_t at_a_time = 0) {
    const auto forwards = parity::forwards_of(lab_.model(), trace);
    ASSERT_TRUE(forwards.ok());
    Replay replay(forwards->front(), trace.manifest().engine.precision, trace, job_.tokens, "all",
                  2);
    if (at_a_time > 0) replay.judge_numbers_at_a_time(at_a_time);
    std::vector<int64_t> positions;
    for (int64_t p = 0; p < trace.positions(); ++p) positions.push_back(p);
    int64_t unsettled = 0;
    for (op::ValueId id = 0; id < std::ssize(program_.values); ++id) {
      if (!trace.has(program_.value(id).name)) continue;
      const auto few = replay.judge(id, positions);
      const auto all = replay.judge(id, positions, Replay::Settle::kAll);
      ASSERT_EQ(few.has_value(), all.has_value());
      if (!few) continue;
      // Errors in single precision tell products in double precision apart by the order of their
      // sums, far behind the digits that are told.
      const Told a = told(*few);
      const Told b = told(*all);
      SCOPED_TRACE(what + ": " + program_.value(id).name);
      EXPECT_EQ(a.worst_position, b.worst_position);
      EXPECT_EQ(a.defects, b.defects);
      if (std::isfinite(b.worst_ratio))
        EXPECT_NEAR(a.worst_ratio, b.worst_ratio, 1e-6 * b.worst_ratio);
      else
        EXPECT_EQ(a.worst_ratio, b.worst_ratio);
      EXPECT_NEAR(a.expected, b.expected, 1e-6 * b.expected);
      unsettled += std::ranges::count(*few, false, &OwnError::settled);
      EXPECT_EQ(std::ranges::count(*all, false, &OwnError::settled), 0);
    }
    EXPECT_GT(unsettled, 0) << what;
  }

  Lab lab_;
  Job job_;
  op::Program program_;
  Scratch scratch_;
};

TEST_P(SettleTest, WhatIsToldIsTheSame) {
  const Style styles[] = {{.name = "f32"},
                          {.name = "pairwise", .order = parity::Order::kPairwise},
                          {.name = "bf16", .activations = DType::kBF16, .kv = DType::kBF16},
                          {.name = "int8", .int8 = true}};
  for (const Style& style : styles) {
    const trace::Trace trace = lab_.record(job_, style, program_);
    expect_same(trace, style.name);
    for (const int64_t rows : {1, 2, 9})
      expect_same(trace, fmt::format("{}, {} positions at a time", style.name, rows), rows * 256);
  }
}

TEST_P(SettleTest, AlsoWhereSomethingIsWrong) {
  const trace::Trace honest = lab_.record(job_, {}, program_);
  const std::string folder = scratch_.next();
  rewrite(honest, folder, DType::kF32, [](Tensor& tensor) {
    // A whole checkpoint, one number, and a NaN.
    if (tensor.checkpoint == "blk.0.ffn_up")
      for (double& x : tensor.values) x *= 1.001;
    if (tensor.checkpoint == "blk.1.q") tensor.values[tensor.values.size() / 2] += 0.01;
    if (tensor.checkpoint == "blk.1.attn_out") tensor.values[7] = std::nan("");
    return true;
  });
  const auto wrong = trace::Trace::open(folder);
  ASSERT_TRUE(wrong.ok());
  expect_same(*wrong, "wrong");
  for (const int64_t rows : {1, 2, 9})
    expect_same(*wrong, fmt::format("wrong, {} positions at a time", rows), rows * 256);
}

// Computes some products on the CPU, wrong ones among them, and then no more.
class BreakingDevice : public exec::f64::ProductDevice {
 public:
  Result<void> run(const exec::f64::Task& task, int threads, const exec::f64::Take& take) override {
    const bool breaks = left_-- == 0;
    int64_t taken = 0;
    exec::f64::cpu_products().run(task, threads, [&](const exec::f64::Part& part) {
      if (!breaks) return take(part);
      if (taken++ > 0) return;
      std::vector<double> wrong(static_cast<size_t>(part.rows * part.stride), 1e9);
      exec::f64::Part other = part;
      other.product = task.x != nullptr ? wrong.data() : nullptr;
      take(other);
    });
    if (breaks) return error("out of memory on purpose");
    return {};
  }

 private:
  int left_ = 5;
};

TEST_P(SettleTest, ADeviceThatFailsHalfwayChangesNothingButANote) {
  const trace::Trace reference = lab_.record(job_, {}, program_);
  const trace::Trace suspect =
      lab_.record(job_, {.name = "pairwise", .order = parity::Order::kPairwise}, program_);
  parity::CompareOptions options;
  options.threads = 1;
  const auto plain = parity::compare(reference, suspect, &lab_.model(), options);
  options.device = std::make_shared<parity::Products>(std::make_unique<BreakingDevice>(), 0);
  const auto broken = parity::compare(reference, suspect, &lab_.model(), options);
  ASSERT_TRUE(plain.ok() && broken.ok());
  EXPECT_EQ(broken->verdict, plain->verdict);
  EXPECT_TRUE(broken->parity);
  ASSERT_EQ(broken->checkpoints.size(), plain->checkpoints.size());
  for (size_t i = 0; i < plain->checkpoints.size(); ++i) {
    const parity::CheckpointResult& a = plain->checkpoints[i];
    const parity::CheckpointResult& b = broken->checkpoints[i];
    EXPECT_EQ(a.verdict, b.verdict) << a.name;
    ASSERT_EQ(a.suspect.worst.has_value(), b.suspect.worst.has_value()) << a.name;
    if (!a.suspect.worst) continue;
    EXPECT_EQ(a.suspect.worst->position, b.suspect.worst->position) << a.name;
    EXPECT_EQ(a.suspect.worst->ratio(), b.suspect.worst->ratio()) << a.name;
  }
  ASSERT_EQ(broken->notes.size(), plain->notes.size() + 1);
  EXPECT_EQ(broken->notes.back(),
            "the GPU was given up, and the CPU did the rest of the work: out of memory on purpose");
}

INSTANTIATE_TEST_SUITE_P(Formats, SettleTest, testing::Values("f32", "q4_k", "q8_0"));

}  // namespace
}  // namespace lockstep::engines
