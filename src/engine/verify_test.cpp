#include "engine/verify.h"

#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "quant/decode.h"

namespace lockstep::engine {
namespace {

constexpr int64_t kRows = 257, kColumns = 7;

// Gives back what the file has, but for one value.
class Holder : public exec::Executor {
 public:
  Holder(const op::Program& program, int64_t wrong_at, float change)
      : Executor(program), wrong_at_(wrong_at), change_(change) {}
  Result<std::vector<float>> read_back(const op::Weight& weight, int64_t first,
                                       int64_t rows) const override {
    std::vector<float> out(static_cast<size_t>(rows * weight.columns));
    quant::decode(weight.format->format(), weight.row(first), rows * weight.columns, out.data());
    const int64_t place = wrong_at_ - first * weight.columns;
    if (place >= 0 && place < std::ssize(out)) out[static_cast<size_t>(place)] += change_;
    return out;
  }
  DType dtype() const override { return DType::kF32; }
  exec::Precision precision() const override { return {}; }

 protected:
  Result<View> evaluate(const exec::Step&) override { return error("not here"); }

 private:
  int64_t wrong_at_;
  float change_;
};

class Verify : public ::testing::Test {
 protected:
  Verify() : values_(kRows * kColumns) {
    Random random(7);
    for (float& value : values_) value = static_cast<float>(random.below(1000)) - 500.0f;
    values_[3] = -0.0f;
    values_[5] = std::numeric_limits<float>::quiet_NaN();
    op::Weight weight{"w", &quant::info(quant::Format::kF32), kRows, kColumns, {}, false};
    weight.data = std::as_bytes(std::span(values_));
    // Twice: it is read back once.
    program_.ops = {{op::Linear{weight, {}}, {}, {}, -1}, {op::Embed{weight, {}}, {}, {}, -1}};
  }

  std::vector<float> values_;
  op::Program program_;
};

TEST_F(Verify, AllAsInTheFile) {
  const auto checks = verify_weights(program_, Holder(program_, -1, 0));
  ASSERT_TRUE(checks.ok());
  ASSERT_EQ(checks->size(), 1u);
  EXPECT_EQ((*checks)[0].tensor, "w");
  EXPECT_EQ((*checks)[0].values, kRows * kColumns);
  EXPECT_EQ((*checks)[0].wrong, 0);
}

TEST_F(Verify, OneValueThatDiffers) {
  for (const int64_t at : {int64_t{0}, int64_t{3}, kRows * kColumns - 1}) {
    const auto checks = verify_weights(program_, Holder(program_, at, 1), "w");
    ASSERT_TRUE(checks.ok());
    const WeightCheck& check = checks->at(0);
    EXPECT_EQ(check.wrong, 1);
    EXPECT_EQ(check.first_wrong, at);
    EXPECT_EQ(check.expected, values_[static_cast<size_t>(at)]);
    EXPECT_EQ(check.actual, values_[static_cast<size_t>(at)] + 1);
  }
}

TEST_F(Verify, TheSignOfZeroCounts) {
  const auto checks = verify_weights(program_, Holder(program_, 3, 0));  // -0.0 + 0.0 is 0.0
  ASSERT_TRUE(checks.ok());
  EXPECT_EQ(checks->at(0).wrong, 1);
}

TEST_F(Verify, AnUnknownNameIsAnError) {
  EXPECT_FALSE(verify_weights(program_, Holder(program_, -1, 0), "x").ok());
}

}  // namespace
}  // namespace lockstep::engine
