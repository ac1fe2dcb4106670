// Every op on the fast executors, against the reference.
#include <random>

#include "base/test_effort.h"
#include "executors/op_cases.h"
#include "executors/run.h"

namespace lockstep {
namespace {

class CpuOps : public ::testing::Test {
 protected:
  static std::vector<OpCase> cases() {
    std::vector<OpCase> all = op_cases();
    std::erase_if(all, [number = size_t{0}](const OpCase&) mutable { return !takes(number++); });
    return all;
  }

  uint64_t seed_ = std::random_device{}();
};

TEST_F(CpuOps, AgreeWithTheReference) {
  for (const OpCase& item : cases()) {
    SCOPED_TRACE(fmt::format("{}, seed {}", item.name, seed_));
    CaseBuilder builder(seed_);
    item.build(builder);
    const op::Program& program = builder.finish();
    const Outcome expected = run(program, builder.ids, {.watched = true});
    for (const DType kv : {DType::kF16, DType::kF32}) {
      if (kv == DType::kF32 && item.rounding != Rounding::kCache) continue;
      const Outcome actual =
          run(program, builder.ids, {.device = "cpu", .options = {.kv = kv}, .watched = true});
      expect_close(actual, expected, tolerance(item.rounding, kv == DType::kF16));
    }
  }
}

// The same bits on every kind of machine, for any number of threads, however the tokens are cut
// into steps, straight from the file, and unwatched.
TEST_F(CpuOps, GiveTheSameBitsInEveryWay) {
  for (const OpCase& item : cases()) {
    CaseBuilder builder(seed_);
    item.build(builder);
    const op::Program& program = builder.finish();
    const Outcome expected =
        run(program, builder.ids, {.device = "cpu", .options = {.threads = 1}, .watched = true});
    const auto expect_same = [&](const Way& way) {
      SCOPED_TRACE(fmt::format("{}, target {}, {} threads, seed {}", item.name, way.target,
                               way.options.threads, seed_));
      const Outcome actual = run(program, builder.ids, way);
      EXPECT_EQ(bits(actual.logits), bits(expected.logits));
      if (!way.watched || !way.steps.empty()) return;
      for (const auto& [name, values] : expected.values)
        EXPECT_EQ(bits(actual.values.at(name)), bits(values)) << name;
    };
    for (const std::string& target : supported_targets())
      expect_same({.device = "cpu", .target = target, .options = {.threads = 1}, .watched = true});
    expect_same({.device = "cpu", .options = {.threads = 3}});
    expect_same({.device = "cpu", .options = {.threads = 2, .repack = false}});
    expect_same({.device = "cpu", .options = {.threads = 2}, .steps = {1, 1, 5, 13, 12, 1}});
  }
}

// Where a number is not finite, the tokens before it must not notice.
TEST_F(CpuOps, LaterTokensDoNotSpoilEarlierOnes) {
  for (const float spoiled :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    CaseBuilder builder(seed_);
    builder.tokens = 30;
    const op::Attention attention{
        .heads = 4, .kv_heads = 2, .head_size = 16, .value_size = 16, .scale = 0.25};
    const op::ValueId q = builder.input(64), k = builder.input(32), v = builder.input(32);
    const op::ValueId mix = builder.attention(attention, q, k, v);
    builder.add(op::Linear{builder.weight(quant::Format::kQ8_0, 33, 64), {}}, {mix}, 33);
    const op::Program& program = builder.finish();
    const Outcome clean = run(program, builder.ids, {.device = "cpu"});
    constexpr int64_t kSpoiled = 17;
    for (const op::ValueId id : {k, v}) {
      const auto& table = std::get<op::Embed>(program.ops[static_cast<size_t>(id)].what).table;
      float* row = const_cast<float*>(reinterpret_cast<const float*>(table.row(kSpoiled)));
      const float before = row[3];
      row[3] = spoiled;
      const Outcome outcome = run(program, builder.ids, {.device = "cpu"});
      for (int64_t t = 0; t < 30; ++t) {
        const auto begin = static_cast<size_t>(t * 33);
        const std::vector<double> actual(outcome.logits.begin() + static_cast<long>(begin),
                                         outcome.logits.begin() + static_cast<long>(begin + 33));
        const std::vector<double> expected(clean.logits.begin() + static_cast<long>(begin),
                                           clean.logits.begin() + static_cast<long>(begin + 33));
        if (t < kSpoiled) {
          EXPECT_EQ(bits(actual), bits(expected)) << "token " << t;
        } else if (id == v) {
          EXPECT_TRUE(std::isnan(actual[0])) << "token " << t;
        }
      }
      row[3] = before;
    }
  }
}

TEST_F(CpuOps, TheOverrideChoosesTheTarget) {
  for (const exec::cpu::Target& target : exec::cpu::targets()) {
    setenv("LOCKSTEP_CPU_TARGET", std::string(target.name).c_str(), 1);
    const auto chosen = exec::cpu::choose_target();
    ASSERT_EQ(chosen.ok(), target.supported());
    if (chosen.ok()) {
      EXPECT_EQ(*chosen, &target);
    }
  }
  setenv("LOCKSTEP_CPU_TARGET", "abacus", 1);
  const auto unknown = exec::cpu::choose_target();
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("abacus"), std::string::npos);
  EXPECT_NE(unknown.error().message.find("portable"), std::string::npos);
  setenv("LOCKSTEP_CPU_TARGET", "", 1);
  ASSERT_TRUE(exec::cpu::choose_target().ok());
}

}  // namespace
}  // namespace lockstep
