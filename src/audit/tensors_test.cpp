#include "audit/tensors.h"

#include <bit>
#include <cstring>
#include <limits>

#include "audit/test_support.h"
#include "base/float16.h"
#include "base/test_effort.h"
#include "quant/blocks.h"

namespace lockstep::audit::test {
namespace {

using quant::Format;
constexpr auto kF32 = Format::kF32;

// Rows that every format takes, and odd numbers of them.
constexpr int64_t kWidths[] = {256, 768};
constexpr int64_t kRows[] = {1, 7, 257};

TEST(AuditTensors, EveryFormatIsQuantizedAtAnyMagnitude) {
  Random random(fresh_seed());
  for (const Format format : written_formats()) {
    for (const double scale : {1e-3, 1.0, 300.0}) {
      const int64_t width = kWidths[random.below(2)], rows = kRows[random.below(3)];
      const Floats x = gaussian(random, width * rows, scale);
      const TensorAudit there = pair_of({width, rows}, x, kF32, {width, rows}, x, format);
      const TensorAudit back = pair_of({width, rows}, x, format, {width, rows}, x, kF32);
      const std::string expected = format == kF32 ? "equal" : "quantized";
      EXPECT_EQ(verdict_of(there), expected) << quant::info(format).name << " " << scale;
      EXPECT_EQ(verdict_of(back), expected) << quant::info(format).name << " " << scale;
      ASSERT_TRUE(there.error && back.error);
      EXPECT_EQ(*there.error, *back.error);
      if (format == kF32) continue;
      EXPECT_NEAR(*there.times_encoder, 1, 1e-9) << quant::info(format).name;
      EXPECT_LE(*there.best_scale_error, *there.error);
      EXPECT_GE(*there.best_scale_error, 0.8 * *there.error) << quant::info(format).name;
    }
  }
}

TEST(AuditTensors, TwoQuantizedFilesOfOneModelAreTheSame) {
  Random random(fresh_seed());
  const Floats x = gaussian(random, 256 * 64);
  size_t number = 0;
  for (const Format a : written_formats())
    for (const Format b : written_formats()) {
      if (!takes(number++)) continue;
      const TensorAudit found = pair_of({256, 64}, x, a, {256, 64}, x, b);
      EXPECT_EQ(verdict_of(found), a == b ? "equal" : "quantized")
          << quant::info(a).name << " " << quant::info(b).name;
    }
}

// Outliers, rows of zeros, equal rows, and rows of very different magnitudes.
TEST(AuditTensors, UnevenNumbersAreQuantizedToo) {
  Random random(fresh_seed());
  constexpr int64_t kWidth = 512, kCount = 129;
  Floats x;
  for (int64_t row = 0; row < kCount; ++row) {
    const double magnitude = row % 17 == 0 ? 0 : std::pow(10, 4 * random.uniform() - 3);
    for (int64_t i = 0; i < kWidth; ++i) {
      const double tail = random.gaussian() * random.gaussian() * random.gaussian();
      x.push_back(row % 17 == 1 ? 0.25f : static_cast<float>(magnitude * tail));
    }
  }
  for (const Format format : written_formats()) {
    const TensorAudit found = pair_of({kWidth, kCount}, x, kF32, {kWidth, kCount}, x, format);
    EXPECT_EQ(verdict_of(found), format == kF32 ? "equal" : "quantized")
        << quant::info(format).name << ": " << found.detail;
    const TensorAudit again =
        pair_of({kWidth, kCount}, x, Format::kQ6_K, {kWidth, kCount}, x, format);
    EXPECT_EQ(verdict_of(again), format == Format::kQ6_K ? "equal" : "quantized")
        << quant::info(format).name << ": " << again.detail;
  }
}

TEST(AuditTensors, OtherNumbersAreWrongInEveryFormat) {
  Random random(fresh_seed());
  for (const Format format : written_formats()) {
    const Floats x = gaussian(random, 256 * 33), y = gaussian(random, 256 * 33);
    EXPECT_EQ(verdict_of(pair_of({256, 33}, x, kF32, {256, 33}, y, format)), "wrong unknown")
        << quant::info(format).name;
    EXPECT_EQ(verdict_of(pair_of({256, 33}, x, format, {256, 33}, y, format)), "wrong unknown")
        << quant::info(format).name;
  }
}

std::vector<std::byte> cut_to_bf16(const Floats& x) {
  std::vector<std::byte> out(2 * x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto upper = static_cast<uint16_t>(std::bit_cast<uint32_t>(x[i]) >> 16);
    std::memcpy(out.data() + 2 * i, &upper, 2);
  }
  return out;
}

// Floats that another program cut off instead of rounding.
TEST(AuditTensors, CutFloatsAreRounded) {
  Random random(fresh_seed());
  for (const int64_t n : {int64_t{1}, int64_t{7}, int64_t{255}, int64_t{257}, int64_t{4096}}) {
    const Floats x = gaussian(random, n);
    Model a, b;
    a.add("x", {n}, x);
    b.add_bytes("x", {n}, Format::kBF16, cut_to_bf16(x));
    EXPECT_EQ(verdict_of(tensors_of(a, b).at("x")), "quantized") << n;
  }
}

// A format that we read and cannot write, from an encoder that fits nothing.
TEST(AuditTensors, PlainIq4IsQuantized) {
  Random random(fresh_seed());
  const Floats x = gaussian(random, 256 * 33, 0.02);
  std::vector<std::byte> bytes;
  for (size_t first = 0; first < x.size(); first += 32) {
    quant::BlockIQ4_NL block{};
    float most = 0;
    for (size_t i = 0; i < 32; ++i)
      if (std::fabs(x[first + i]) > std::fabs(most)) most = x[first + i];
    block.d = float_to_half(most / -127);
    const float scale = half_to_float(block.d);
    for (size_t i = 0; i < 32; ++i) {
      int best = 0;
      for (int code = 1; code < 16; ++code)
        if (std::fabs(scale * quant::iq4_level(code) - x[first + i]) <
            std::fabs(scale * quant::iq4_level(best) - x[first + i]))
          best = code;
      block.codes[i % 16] |= static_cast<uint8_t>(i < 16 ? best : best << 4);
    }
    const auto* from = reinterpret_cast<const std::byte*>(&block);
    bytes.insert(bytes.end(), from, from + sizeof block);
  }
  Model a, b;
  a.add("x", {256, 33}, x, Format::kF16);
  b.add_bytes("x", {256, 33}, Format::kIQ4_NL, bytes);
  const TensorAudit found = tensors_of(a, b).at("x");
  EXPECT_EQ(verdict_of(found), "quantized");
  EXPECT_LT(*found.times_encoder, 1.5);
}

TEST(AuditTensors, TheSameNumbersInOtherFloatsAreEqual) {
  Random random(fresh_seed());
  Floats x;
  for (int64_t i = 0; i < 257; ++i)
    x.push_back(std::ldexp(static_cast<float>(random.below(128)) - 64, -5));
  for (const Format a : {kF32, Format::kF16, Format::kBF16})
    for (const Format b : {kF32, Format::kF16, Format::kBF16}) {
      const TensorAudit found = pair_of({257}, x, a, {257, 1, 1}, x, b);
      EXPECT_EQ(verdict_of(found), "equal");
      EXPECT_EQ(found.error, 0.0);
    }
}

// A mistake made on the numbers of A, in all formats of B.
struct Mistake {
  const char* name;
  const char* verdict;
  std::vector<int64_t> dims_a, dims_b;
  std::function<float(const Floats&, int64_t)> of;  // B's number at an index
};

std::vector<Mistake> mistakes() {
  constexpr int64_t kWidth = 256, kCount = 64;
  const auto row = [](int64_t i) { return i / kWidth; };
  const auto at = [](const Floats& x, int64_t r, int64_t c) {
    return x[static_cast<size_t>(r * kWidth + c)];
  };
  const std::vector<int64_t> dims = {kWidth, kCount}, square = {kWidth, kWidth};
  const auto transposed = [at](const Floats& x, int64_t i) {
    return at(x, i % kWidth, i / kWidth);
  };
  const auto rope = [](int64_t r, bool to_adjacent) {  // heads of 64 / 4 = 16 rows
    const int64_t j = r % 16;
    return r - j + (to_adjacent ? j % 2 * 8 + j / 2 : j % 8 * 2 + j / 8);
  };
  return {
      {"transposed", "wrong transposed", square, square, transposed},
      {"adjacent", "wrong permuted", dims, dims,
       [=](const Floats& x, int64_t i) { return at(x, rope(row(i), true), i % kWidth); }},
      {"halves", "wrong permuted", dims, dims,
       [=](const Floats& x, int64_t i) { return at(x, rope(row(i), false), i % kWidth); }},
      {"reversed", "wrong permuted", dims, dims,
       [=](const Floats& x, int64_t i) { return at(x, kCount - 1 - row(i), i % kWidth); }},
      {"two rows", "wrong permuted", dims, dims,
       [=](const Floats& x, int64_t i) {
         const int64_t r = row(i);
         return at(x, r == 5 ? 41 : r == 41 ? 5 : r, i % kWidth);
       }},
      {"columns", "wrong permuted", dims, dims,
       [=](const Floats& x, int64_t i) { return at(x, row(i), (i + 77) % kWidth); }},
      {"row repeated", "wrong unknown", dims, dims,
       [=](const Floats& x, int64_t i) { return at(x, row(i) == 5 ? 6 : row(i), i % kWidth); }},
      {"halves of rows", "wrong halves_swapped", dims, dims,
       [=](const Floats& x, int64_t i) {
         return at(x, (row(i) + kCount / 2) % kCount, i % kWidth);
       }},
      {"offset", "wrong offset", dims, dims,
       [](const Floats& x, int64_t i) { return x[static_cast<size_t>(i)] + 1; }},
      {"scaled", "wrong scaled", dims, dims,
       [](const Floats& x, int64_t i) { return x[static_cast<size_t>(i)] * 1.75f; }},
      {"negated", "wrong scaled", dims, dims,
       [](const Floats& x, int64_t i) { return -x[static_cast<size_t>(i)]; }},
      {"zeros", "wrong unknown", dims, dims, [](const Floats&, int64_t) { return 0.0f; }},
  };
}

TEST(AuditTensors, MistakesAreNamedInEveryFormat) {
  Random random(fresh_seed());
  size_t number = 0;
  for (const Mistake& mistake : mistakes()) {
    for (const Format format : written_formats()) {
      if (!takes(number++)) continue;
      const Floats x = gaussian(random, mistake.dims_a[0] * mistake.dims_a[1], 0.7);
      Floats y;
      for (size_t i = 0; i < x.size(); ++i) y.push_back(mistake.of(x, static_cast<int64_t>(i)));
      constexpr Format kTrusted[] = {kF32, Format::kF16, Format::kQ8_0, Format::kQ5_K};
      const Format trusted = kTrusted[random.below(4)];
      const TensorAudit found = pair_of(mistake.dims_a, x, trusted, mistake.dims_b, y, format);
      EXPECT_EQ(verdict_of(found), mistake.verdict)
          << mistake.name << " " << quant::info(trusted).name << " " << quant::info(format).name
          << ": " << found.detail;
    }
  }
}

TEST(AuditTensors, OddShapes) {
  Random random(fresh_seed());
  const int64_t width = 255, rows = 7;
  const Floats x = gaussian(random, width * rows);
  Floats turned, reversed;
  for (int64_t i = 0; i < width * rows; ++i)
    turned.push_back(x[static_cast<size_t>(i % rows * width + i / rows)]);
  for (int64_t i = 0; i < width * rows; ++i)
    reversed.push_back(x[static_cast<size_t>((rows - 1 - i / width) * width + i % width)]);
  const std::vector<int64_t> dims = {width, rows};
  EXPECT_EQ(verdict_of(pair_of(dims, x, kF32, {rows, width}, turned, kF32)), "wrong transposed");
  EXPECT_EQ(verdict_of(pair_of(dims, x, kF32, dims, turned, Format::kF16)), "wrong transposed");
  EXPECT_EQ(verdict_of(pair_of(dims, x, kF32, dims, reversed, Format::kBF16)), "wrong permuted");
  const TensorAudit reshaped = pair_of(dims, x, kF32, {rows, width}, x, kF32);
  EXPECT_EQ(verdict_of(reshaped), "wrong transposed");
  EXPECT_EQ(reshaped.detail,
            "the same numbers in the same order, but the shape is [7, 255] instead of [255, 7]");
}

TEST(AuditTensors, VectorsAreExplainedToo) {
  Random random(fresh_seed());
  for (const int64_t n : {int64_t{64}, int64_t{256}}) {
    const Floats x = gaussian(random, n);
    Floats rope, shuffled = x, plus = x, halves;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t j = i % 16;
      rope.push_back(x[static_cast<size_t>(i - j + j % 2 * 8 + j / 2)]);
      halves.push_back(x[static_cast<size_t>((i + n / 2) % n)]);
    }
    for (float& value : plus) value += 1;
    std::ranges::sort(shuffled);
    const auto verdict = [&](const Floats& y) {
      return verdict_of(pair_of({n}, x, kF32, {n}, y, kF32));
    };
    EXPECT_EQ(verdict(rope), "wrong permuted");
    EXPECT_EQ(verdict(shuffled), "wrong permuted");
    EXPECT_EQ(verdict(plus), "wrong offset");
    EXPECT_EQ(verdict(halves), "wrong halves_swapped");
    EXPECT_EQ(verdict(gaussian(random, n)), "wrong unknown");
  }
}

TEST(AuditTensors, ConstantsAndZeros) {
  const Floats zeros(257, 0), ones(257, 1), twos(257, 2), fives(257, 5);
  const auto verdict = [&](const Floats& a, const Floats& b) {
    return verdict_of(pair_of({257}, a, kF32, {257}, b, kF32));
  };
  EXPECT_EQ(verdict(zeros, zeros), "equal");
  EXPECT_EQ(verdict(zeros, ones), "wrong offset");
  EXPECT_EQ(verdict(ones, twos), "wrong offset");
  EXPECT_EQ(verdict(ones, fives), "wrong scaled");
  EXPECT_EQ(verdict(ones, zeros), "wrong unknown");
  const Floats minus_zeros(257, -0.0f);
  EXPECT_EQ(verdict(zeros, minus_zeros), "equal");
}

TEST(AuditTensors, WhatIsNoNumberMustBeTheSame) {
  Random random(fresh_seed());
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Floats x = gaussian(random, 257 * 32);
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    Floats y = x;
    const auto place = static_cast<size_t>(random.below(257 * 32));
    y[place] = bad;
    const TensorAudit found = pair_of({32, 257}, x, kF32, {32, 257}, y, kF32);
    EXPECT_EQ(verdict_of(found), "wrong unknown");
    EXPECT_NE(found.detail.find(fmt::format("row {}, column {}: A has {:.6g}, B {:.6g}", place / 32,
                                            place % 32, x[place], bad)),
              std::string::npos)
        << found.detail;
    EXPECT_EQ(verdict_of(pair_of({32, 257}, y, kF32, {32, 257}, x, kF32)), "wrong unknown");
    Model floats, halves;
    floats.add("x", {32, 257}, y);
    halves.add_bytes("x", {32, 257}, Format::kBF16, cut_to_bf16(y));
    EXPECT_EQ(verdict_of(tensors_of(floats, halves).at("x")), "quantized");
    EXPECT_EQ(verdict_of(pair_of({32, 257}, y, kF32, {32, 257}, y, kF32)), "equal");
  }
}

// One wrong number is nothing else: what is rounding beside it must not be explained in its place.
TEST(AuditTensors, OneWrongNumberIsNoScale) {
  Random random(fresh_seed());
  for (int round = 0; round < 200; ++round) {
    const Floats x = gaussian(random, 256 * 8);
    Floats wrong = x;
    wrong[static_cast<size_t>(random.below(256 * 8))] += 100;
    const TensorAudit found = pair_of({256, 8}, x, kF32, {256, 8}, wrong, Format::kF16);
    EXPECT_EQ(verdict_of(found), "wrong unknown") << found.detail;
    EXPECT_TRUE(found.detail.starts_with("row ")) << found.detail;
  }
}

// One number of many: no mean may hide it.
TEST(AuditTensors, OneWrongBlockIsFound) {
  Random random(fresh_seed());
  for (const Format format : written_formats()) {
    const Floats x = gaussian(random, 256 * 300);
    Floats y = x;
    const int64_t piece = random.below(300);
    for (int64_t i = 0; i < 256; ++i)
      y[static_cast<size_t>(piece * 256 + i)] = static_cast<float>(random.gaussian());
    EXPECT_EQ(verdict_of(pair_of({256, 300}, x, kF32, {256, 300}, y, format)), "wrong unknown")
        << quant::info(format).name;
  }
}

// Too small for the error to show, but no encoder leaves such a factor.
TEST(AuditTensors, SmallScalesAreFound) {
  Random random(fresh_seed());
  const Floats x = gaussian(random, 256 * 300);
  for (const Format format : {Format::kQ8_0, Format::kQ6_K, Format::kQ5_K, Format::kQ4_K}) {
    Floats y = x;
    for (float& value : y) value *= 1.03f;
    const TensorAudit found = pair_of({256, 300}, x, kF32, {256, 300}, y, format);
    EXPECT_EQ(verdict_of(found), "wrong scaled") << quant::info(format).name;
    EXPECT_NEAR(std::stod(found.detail.substr(4)), 1.03, 2e-3) << found.detail;
  }
}

TEST(AuditTensors, TensorsOfOtherPlaces) {
  Random random(fresh_seed());
  Model a, b;
  std::map<std::string, Floats> x;
  for (const char* name : {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.1.ffn_gate.weight",
                           "blk.1.ffn_up.weight"}) {
    x[name] = gaussian(random, 256 * 16);
    a.add(name, {256, 16}, x[name], Format::kF16);
  }
  b.add("blk.0.ffn_gate.weight", {256, 16}, x["blk.1.ffn_gate.weight"], Format::kQ2_K);
  b.add("blk.0.ffn_up.weight", {256, 16}, x["blk.0.ffn_gate.weight"], Format::kQ4_K);
  b.add("blk.1.ffn_gate.weight", {256, 16}, x["blk.1.ffn_gate.weight"], Format::kQ4_0);
  b.add("blk.1.ffn_up.weight", {256, 16}, x["blk.1.ffn_gate.weight"], Format::kMXFP4);
  const auto found = tensors_of(a, b);
  EXPECT_EQ(verdict_of(found.at("blk.0.ffn_gate.weight")), "wrong other_layer");
  EXPECT_EQ(found.at("blk.0.ffn_gate.weight").detail, "it is A's blk.1.ffn_gate.weight");
  EXPECT_EQ(verdict_of(found.at("blk.0.ffn_up.weight")), "wrong other_tensor");
  EXPECT_EQ(verdict_of(found.at("blk.1.ffn_gate.weight")), "quantized");
  EXPECT_EQ(verdict_of(found.at("blk.1.ffn_up.weight")), "wrong other_tensor");
}

// One head alone, or one expert: the words must not say that it is the whole tensor.
TEST(AuditTensors, AMistakeInAPartSaysSo) {
  Random random(fresh_seed());
  constexpr int64_t kWidth = 256, kLines = 64, kQuarter = kWidth * kLines / 4;
  const Floats x = gaussian(random, kWidth * kLines), other = gaussian(random, kWidth * kLines);
  const int64_t first = random.below(4) * kQuarter;
  Floats turned = x, taken = x;
  for (int64_t i = 0; i < kQuarter; ++i) {  // a head of 16 rows
    const int64_t row = i / kWidth, from = row % 2 * 8 + row / 2;
    const auto at = static_cast<size_t>(first + i);
    turned[at] = x[static_cast<size_t>(first + from * kWidth + i % kWidth)];
    taken[at] = other[at];
  }
  for (const Format format : {kF32, Format::kQ8_0, Format::kQ4_K}) {
    const TensorAudit head = pair_of({kWidth, kLines}, x, kF32, {kWidth, kLines}, turned, format);
    EXPECT_EQ(verdict_of(head), "wrong permuted");
    EXPECT_TRUE(head.detail.ends_with("where B is wrong, in 22% of the tensor")) << head.detail;
    Model a, b;
    a.add("blk.0.ffn_gate_exps.weight", {kWidth, 16, 4}, x, kF32);
    a.add("blk.0.ffn_up_exps.weight", {kWidth, 16, 4}, other, kF32);
    b.add("blk.0.ffn_gate_exps.weight", {kWidth, 16, 4}, taken, format);
    const TensorAudit expert = tensors_of(a, b).at("blk.0.ffn_gate_exps.weight");
    EXPECT_EQ(verdict_of(expert), "wrong other_tensor");
    EXPECT_EQ(expert.detail,
              "it is A's blk.0.ffn_up_exps.weight where B is wrong, in 25% of the tensor");
  }
}

TEST(AuditTensors, MissingExtraAndTied) {
  Random random(fresh_seed());
  const Floats table = gaussian(random, 64 * 33), other = gaussian(random, 64 * 33);
  Model tied, same, own;
  for (Model* model : {&tied, &same, &own})
    model->add("token_embd.weight", {64, 33}, table, Format::kF16);
  same.add("output.weight", {64, 33}, table, Format::kQ8_0);
  own.add("output.weight", {64, 33}, other, Format::kF16);
  const auto output = [](const Model& a, const Model& b) {
    return tensors_of(a, b).at("output.weight");
  };
  EXPECT_EQ(verdict_of(output(same, tied)), "quantized");
  EXPECT_TRUE(output(same, tied).tied);
  EXPECT_EQ(verdict_of(output(tied, same)), "quantized");
  EXPECT_TRUE(output(tied, same).tied);
  EXPECT_EQ(verdict_of(output(own, tied)), "missing");
  EXPECT_EQ(output(own, tied).detail, "B uses the embedding instead, which is another matrix");
  EXPECT_EQ(verdict_of(output(tied, own)), "extra");
  EXPECT_FALSE(output(tied, own).tied);
  EXPECT_EQ(tensors_of(tied, tied).size(), 1u);
}

TEST(AuditTensors, APaddedVocabularyIsTold) {
  Random random(fresh_seed());
  const Floats x = gaussian(random, 64 * 40);
  const Floats first(x.begin(), x.begin() + 64 * 33);
  const TensorAudit found = pair_of({64, 33}, first, kF32, {64, 40}, x, Format::kQ8_0);
  EXPECT_EQ(verdict_of(found), "wrong unknown");
  EXPECT_EQ(found.detail, "B has 40 rows, A 33; the first 33 are the same but for quantization");
}

TEST(AuditTensors, FormatsThatCannotBeDecodedMustBeEqualBytes) {
  Files files;
  Model a, b;
  const auto format = static_cast<Format>(16);  // IQ2_XXS
  a.add_bytes("x", {256, 2}, format, std::vector<std::byte>(132));
  b.add_bytes("x", {256, 2}, format, std::vector<std::byte>(132, std::byte{1}));
  const gguf::File file_a = files.open(a), file_b = files.open(b);
  EXPECT_TRUE(audit_tensors(file_a, file_a, [](int64_t) {}).ok());
  const auto found = audit_tensors(file_a, file_b, [](int64_t) {});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message,
            file_a.path() +
                ": tensor x is IQ2_XXS, which cannot be decoded; expected a format that 'lockstep "
                "run' takes, or the same bytes and shape in both files");
  Model turned;
  turned.add_bytes("x", {512}, format, std::vector<std::byte>(132));
  EXPECT_FALSE(audit_tensors(file_a, files.open(turned), [](int64_t) {}).ok());
}

TEST(AuditTensors, ProgressCountsAllBytes) {
  Random random(fresh_seed());
  Files files;
  Model a, b;
  const Floats x = gaussian(random, 256 * 7);
  a.add("same", {256, 7}, x);
  a.add("quantized", {256, 7}, x);
  a.add("missing", {256, 7}, x);
  b.add("same", {256, 7}, x);
  b.add("quantized", {256, 7}, x, Format::kQ4_K);
  b.add("extra", {7, 256}, x);
  const gguf::File file_a = files.open(a), file_b = files.open(b);
  int64_t told = 0, expected = 0;
  ASSERT_TRUE(audit_tensors(file_a, file_b, [&](int64_t bytes) { told += bytes; }).ok());
  for (const gguf::File* file : {&file_a, &file_b})
    for (const gguf::Tensor& tensor : file->tensors())
      expected += static_cast<int64_t>(tensor.data.size());
  EXPECT_EQ(told, expected);
}

}  // namespace
}  // namespace lockstep::audit::test
