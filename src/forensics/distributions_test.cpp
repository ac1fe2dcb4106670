// Honest numbers of every kind and length: no row of them is taken for another format, for zeros
// that should not be, or for any other garbage.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "forensics/test_support.h"

namespace lockstep::forensics {
namespace {

struct Distribution {
  const char* name;
  const char* checkpoint;
  // Gives the next row's numbers; what is drawn once for a checkpoint is in `once`.
  std::function<std::vector<double>(Random&, int64_t count, double once)> draw;
};

std::vector<double> each(int64_t count, const std::function<double()>& next) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = next();
  return values;
}

double as_half(double value) {
  return static_cast<double>(half_to_float(float_to_half(static_cast<float>(value))));
}
double as_bfloat(double value) {
  return static_cast<double>(bfloat_to_float(float_to_bfloat(static_cast<float>(value))));
}

std::vector<Distribution> distributions() {
  const auto gaussians = [](double scale) {
    return [scale](Random& random, int64_t count, double) {
      return each(count, [&] { return scale * random.gaussian(); });
    };
  };
  return {
      {"gaussian", "blk.1.ffn_out", gaussians(1)},
      {"tiny", "blk.1.ffn_out", gaussians(1e-30)},
      {"huge", "blk.1.ffn_out", gaussians(1e30)},
      {"gaussian of any scale", "logits",
       [](Random& random, int64_t count, double once) {
         return each(count, [&] { return std::pow(10, 12 * once - 6) * random.gaussian(); });
       }},
      {"cauchy", "blk.1.q",
       [](Random& random, int64_t count, double) {
         return each(count,
                     [&] { return std::clamp(random.gaussian() / random.gaussian(), -1e5, 1e5); });
       }},
      {"constant", "blk.1.q",
       [](Random& random, int64_t count, double) {
         const double value = random.gaussian();
         return each(count, [&] { return value; });
       }},
      {"the same constant everywhere", "blk.1.q",
       [](Random&, int64_t count, double once) {
         return each(count, [&] { return once + 0.01; });
       }},
      {"nearly constant", "blk.1.v",
       [](Random& random, int64_t count, double once) {
         return each(count, [&] { return 1 + 0.01 * once + 1e-5 * random.gaussian(); });
       }},
      {"narrow", "blk.1.v",
       [](Random& random, int64_t count, double once) {
         return each(count, [&] { return (1 + 100 * once) * (1 + 0.01 * random.gaussian()); });
       }},
      {"small integers", "blk.1.v",
       [](Random& random, int64_t count, double) {
         return each(count, [&] { return static_cast<double>(random.below(7) - 3); });
       }},
      {"integers", "token_ids",
       [](Random& random, int64_t count, double) {
         return each(count, [&] { return static_cast<double>(random.below(152000)); });
       }},
      {"counting", "positions",
       [](Random&, int64_t count, double once) {
         double next = std::floor(200000 * once);
         return each(count, [&] { return next++; });
       }},
      {"powers of two", "blk.1.v",
       [](Random& random, int64_t count, double) {
         return each(count, [&] { return std::ldexp(1, static_cast<int>(random.below(25)) - 12); });
       }},
      {"one hot", "one_hot",
       [](Random& random, int64_t count, double) {
         std::vector<double> values(static_cast<size_t>(count));
         values[static_cast<size_t>(random.below(count))] = 1;
         return values;
       }},
      {"one hot at one place", "choice",
       [](Random&, int64_t count, double once) {
         std::vector<double> values(static_cast<size_t>(count));
         values[static_cast<size_t>(once * static_cast<double>(count))] = 1;
         return values;
       }},
      {"softmax", "blk.1.attn_probs",
       [](Random& random, int64_t count, double once) {
         std::vector<double> values = each(count, [&] { return 40 * once * random.gaussian(); });
         const double most = *std::ranges::max_element(values);
         double sum = 0;
         for (double& value : values) sum += value = std::exp(value - most);
         for (double& value : values) value /= sum;
         return values;
       }},
      {"rectified", "blk.1.ffn_act",
       [](Random& random, int64_t count, double once) {
         // Some rows have next to no number that is not zero.
         const double bias = 2 * once + 0.5 * random.gaussian();
         return each(count, [&] { return std::max(0.0, random.gaussian() - bias); });
       }},
      {"halves of fp16 size, widened", "blk.1.k",
       [](Random& random, int64_t count, double once) {
         return each(count, [&] { return as_half((0.01 + 10 * once) * random.gaussian()); });
       }},
      {"bf16, widened", "blk.1.k",
       [](Random& random, int64_t count, double once) {
         return each(count, [&] { return as_bfloat((0.01 + 10 * once) * random.gaussian()); });
       }},
      {"bf16 of tiny size, widened", "blk.1.k",
       [](Random& random, int64_t count, double) {
         return each(count, [&] { return as_bfloat(1e-30 * random.gaussian()); });
       }},
      {"8-bit grid", "blk.1.attn_norm",
       [](Random& random, int64_t count, double once) {
         return each(count, [&] {
           return (once + 0.001) * std::clamp(std::round(20 * random.gaussian()), -127.0, 127.0);
         });
       }},
      {"4-bit grid", "blk.1.attn_norm",
       [](Random& random, int64_t count, double once) {
         return each(count,
                     [&] { return (once + 0.001) * static_cast<double>(random.below(16) - 8); });
       }},
      {"four decimals", "blk.1.output",
       [](Random& random, int64_t count, double) {
         return each(count, [&] { return std::round(1e4 * random.gaussian()) / 1e4; });
       }},
      {"every second is zero", "blk.1.output",
       [](Random& random, int64_t count, double) {
         int64_t i = 0;
         return each(count, [&] { return i++ % 2 == 0 ? 0 : random.gaussian(); });
       }},
      {"every second is zero, the others are narrow", "blk.1.output",
       [](Random& random, int64_t count, double once) {
         int64_t i = 0;
         return each(count, [&] { return i++ % 2 == 0 ? 0 : 1 + once + random.uniform(); });
       }},
  };
}

class Distributions : public testing::Test {
 protected:
  void expect_clean(const Distribution& kind, int64_t width, int64_t rows, DType dtype) {
    const double once = random_.uniform();
    MemorySource source;
    for (int64_t position = 0; position < rows; ++position) {
      Row row = make_row(dtype, kind.draw(random_, width, once));
      // A 16-bit constant such as 0xbebe (-0.37 as bf16) is a fill pattern, whoever made it.
      if (const std::byte first = row.bytes[0];
          first != std::byte{0} &&
          std::ranges::count(row.bytes, first) == static_cast<long>(row.bytes.size()))
        return;
      source.add(kind.checkpoint, position, std::move(row));
    }
    // Rows that are the same cannot be told from stale ones without the tokens, which were the
    // same.
    source.tokens.assign(static_cast<size_t>(rows), 7);
    const Report report = scan(source);
    EXPECT_TRUE(garbage_of(report).empty()) << kind.name << ", " << rows << " rows of " << width
                                            << " " << name(dtype) << ", seed " << seed_ << "\n"
                                            << describe(report);
  }

  uint64_t seed_ = std::random_device{}();
  Random random_{seed_};
};

TEST_F(Distributions, OfAllLengths) {
  for (const Distribution& kind : distributions())
    for (int round = 0; round < rounds(60); ++round) {
      const auto width = static_cast<int64_t>(std::exp2(12 * random_.uniform()));
      expect_clean(kind, width, 1 + random_.below(8), DType::kF32);
    }
}

// What a log has: many short rows, whose evidence is added up.
TEST_F(Distributions, OfShortRows) {
  for (const Distribution& kind : distributions())
    for (int64_t width = 1; width <= 70; width += 1 + width / 10)
      for (const int64_t rows : {1, 5, rounds(40)}) expect_clean(kind, width, rows, DType::kF32);
}

TEST_F(Distributions, OfOtherTypes) {
  for (const Distribution& kind : distributions()) {
    const std::string_view name = kind.name;
    for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
      // What fp16 does not hold is infinite in it, or zero.
      if (dtype == DType::kF16 && (name == "huge" || name.find("tiny") != std::string_view::npos ||
                                   name == "cauchy" || name == "integers" || name == "counting" ||
                                   name == "powers of two" || name == "gaussian of any scale"))
        continue;
      for (int round = 0; round < rounds(10); ++round)
        expect_clean(kind, 1 + random_.below(600), 1 + random_.below(8), dtype);
    }
  }
}

}  // namespace
}  // namespace lockstep::forensics
