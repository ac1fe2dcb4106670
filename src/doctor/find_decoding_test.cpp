#include "doctor/find_decoding.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "base/float16.h"
#include "base/random.h"
#include "base/test_effort.h"
#include "doctor/some_blocks.h"
#include "forge/formats.h"
#include "parity/test_support.h"
#include "quant/decode.h"

namespace lockstep::doctor {
namespace {

using parity::Order;

// A projection of a quantized weight, and an engine that computes it in single precision.
struct Bench {
  std::vector<std::byte> bytes;
  std::vector<float> bias;
  op::Linear linear;
  Matrix x;
  Random random;
  std::string_view format;
  trace::Precision precision;

  Bench(const quant::FormatInfo& info, int64_t outputs, int64_t columns, int64_t positions,
        uint64_t seed, double spread = 0.02)
      : x(positions, columns), random(seed), format(info.name) {
    op::Weight& weight = linear.weight;
    weight = {.name = "w", .format = &info, .rows = outputs, .columns = columns, .data = {}};
    bytes.resize(static_cast<size_t>(outputs * weight.row_bytes()));
    weight.data = bytes;
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t o = 0; o < outputs; ++o) {
      // Mins and signs of scales that differ.
      for (float& w : row)
        w = static_cast<float>(spread * (random.gaussian() + 0.3 * static_cast<double>(o % 3 - 1)));
      forge::encode(info.format(), row.data(), columns, bytes.data() + o * weight.row_bytes());
    }
    for (double& value : x.values)
      value = static_cast<double>(static_cast<float>(random.gaussian()));
    precision.compute = "f32";
  }

  void add_bias() {
    for (int64_t o = 0; o < linear.weight.rows; ++o)
      bias.push_back(static_cast<float>(random.gaussian()));
    linear.bias = op::Weight{.name = "b",
                             .format = &quant::info(quant::Format::kF32),
                             .rows = 1,
                             .columns = linear.weight.rows,
                             .data = std::as_bytes(std::span(bias))};
  }

  // As recorded, where the weight was decoded so; null: truly.
  Matrix engine(const DecodingFit* fit, Order order = Order::kLanes8, size_t int8 = 0) const {
    const op::Weight& weight = linear.weight;
    Matrix y(x.rows, weight.rows);
    std::vector<float> w(static_cast<size_t>(weight.columns));
    std::vector<float> terms(w.size());
    for (int64_t r = 0; r < x.rows; ++r) {
      std::vector<float> in(x.row(r), x.row(r) + x.columns);
      if (int8 > 0) in = parity::round_to_levels(std::span<const float>(in), 127, int8);
      for (int64_t o = 0; o < weight.rows; ++o) {
        decode_fit_row(weight, o, fit, w.data());
        for (size_t i = 0; i < terms.size(); ++i) terms[i] = w[i] * in[i];
        float sum = parity::add_up(std::span<const float>(terms), order);
        if (!bias.empty()) sum += bias[static_cast<size_t>(o)];
        y.row(r)[o] = static_cast<double>(sum);
      }
    }
    return y;
  }

  std::vector<DecodingFit> find(const Matrix& y) const {
    return find_decoding({linear, x, y, parity::arithmetic_of(precision, DType::kF32)}, 2);
  }

  // Within what the sums of an engine can show: beside outputs of garbage others are small.
  bool same(const DecodingFit* a, const DecodingFit* b) const {
    const int64_t columns = linear.weight.columns;
    std::vector<float> one(static_cast<size_t>(columns));
    std::vector<float> other(one.size());
    double most_different = 0;
    double largest = bias.empty() ? 1e-60 : 1;
    for (int64_t o = 0; o < linear.weight.rows; ++o) {
      decode_fit_row(linear.weight, o, a, one.data());
      decode_fit_row(linear.weight, o, b, other.data());
      double difference = 0;
      double size = 0;
      for (size_t i = 0; i < one.size(); ++i) {
        if (std::isfinite(one[i]) != std::isfinite(other[i])) return false;
        if (!std::isfinite(one[i])) continue;
        difference += std::pow(static_cast<double>(one[i]) - static_cast<double>(other[i]), 2);
        size += std::pow(static_cast<double>(other[i]), 2);
      }
      most_different = std::max(most_different, difference);
      largest = std::max(largest, size);
    }
    return most_different <= 1e-9 * largest;
  }

  // Some of the wrong numbers are numbers.
  bool tellable(const Matrix& y) const {
    const Matrix honest = engine(nullptr);
    int64_t wrong = 0;
    int64_t finite = 0;
    for (size_t i = 0; i < y.values.size(); ++i) {
      if (std::fabs(y.values[i] - honest.values[i]) < 1e-4) continue;
      ++wrong;
      finite += std::isfinite(y.values[i]) ? 1 : 0;
    }
    return 2 * finite > wrong;
  }

  // The fit is found, and whatever else explains decodes this weight in the same way.
  void expect_found(const DecodingFit& fit, const Matrix& y) const {
    const std::vector<DecodingFit> found = find(y);
    ASSERT_FALSE(found.empty()) << describe(fit, linear.weight);
    EXPECT_TRUE(found[0].explains()) << format << ": " << describe(fit, linear.weight) << "; best "
                                     << describe(found[0], linear.weight) << " "
                                     << found[0].ratio_after << " of " << found[0].ratio_before;
    EXPECT_EQ(found[0].rows, x.rows);
    EXPECT_EQ(found[0].explained, x.rows);
    EXPECT_GT(found[0].ratio_before, 1);
    EXPECT_LE(found[0].ratio_after, 1);
    for (const DecodingFit& each : found) {
      if (!each.explains()) continue;
      EXPECT_TRUE(same(&each, &fit)) << format << ": " << describe(fit, linear.weight) << " / "
                                     << describe(each, linear.weight);
    }
  }
};

std::vector<const quant::FormatInfo*> block_formats() {
  std::vector<const quant::FormatInfo*> out;
  for (const quant::FormatInfo& format : quant::all_formats())
    if (format.decodable && format.block_values > 1) out.push_back(&format);
  return out;
}

uint64_t fresh_seed() {
  const uint64_t seed = search_seed();
  testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

// Each time another part; LOCKSTEP_THOROUGH=1 tries all.
bool left_out(Random& random, int64_t one_in) {
  return std::getenv("LOCKSTEP_THOROUGH") == nullptr && random.below(one_in) != 0;
}

class FindDecoding : public testing::TestWithParam<const quant::FormatInfo*> {};

TEST_P(FindDecoding, EveryWrongOne) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  Random choice(seed);
  const int64_t one_in = GetParam()->block_values == 256 ? 12 : 3;
  int tried = 0;
  for (const int64_t blocks : {1, 2, 7}) {
    Bench bench(*GetParam(), 33, blocks * GetParam()->block_values, 3,
                seed + static_cast<uint64_t>(blocks));
    if (blocks == 2) bench.add_bias();
    const Matrix honest = bench.engine(nullptr);
    EXPECT_TRUE(bench.find(honest).empty());
    for (const Decoding& decoding : decodings_of(GetParam()->format())) {
      const DecodingFit fit{.decoding = &decoding};
      if (!applies(decoding, bench.linear.weight) || left_out(choice, one_in)) continue;
      if (bench.same(&fit, nullptr)) continue;
      const Matrix y = bench.engine(&fit, parity::kOrders[static_cast<size_t>(choice.below(8))]);
      if (!bench.tellable(y)) continue;
      bench.expect_found(fit, y);
      ++tried;
    }
  }
  EXPECT_GT(tried, 0);
}

// Scales near the end of half precision.
TEST_P(FindDecoding, OfSubnormalScales) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  if (GetParam()->format() == quant::Format::kMXFP4) return;  // it has no half-precision scales
  Bench bench(*GetParam(), 17, 3 * GetParam()->block_values, 2, seed, 3e-5);
  for (const Decoding& decoding : decodings_of(GetParam()->format())) {
    if (decoding.words.find("subnormal") == std::string::npos) continue;
    const DecodingFit fit{.decoding = &decoding};
    EXPECT_FALSE(bench.same(&fit, nullptr));
    bench.expect_found(fit, bench.engine(&fit));
  }
}

TEST_P(FindDecoding, WhereActivationsAreEightBit) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  Random choice(seed);
  Bench bench(*GetParam(), 41, 3 * 256, 3, seed);
  bench.precision.activations = "q8_0";
  const size_t share = GetParam()->block_values == 256 ? 256 : 32;
  EXPECT_TRUE(bench.find(bench.engine(nullptr, Order::kSequential, share)).empty());
  for (const Decoding& decoding : decodings_of(GetParam()->format())) {
    const DecodingFit fit{.decoding = &decoding};
    // What a decoding changes must stand out of the rounding.
    if (decoding.how != "nibble_order" || left_out(choice, 3)) continue;
    bench.expect_found(fit, bench.engine(&fit, Order::kSequential, share));
  }
}

TEST_P(FindDecoding, InSomeBlocksOrRowsOnly) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  Random choice(seed);
  Bench bench(*GetParam(), 41, 7 * GetParam()->block_values, 3, seed);
  const std::vector<std::vector<int64_t>> parts = {{0}, {6}, {1, 3, 5}, {2, 3, 4, 5, 6}};
  const std::vector<std::vector<int64_t>> rows = {
      {}, {40}, {0, 1, 2, 3, 5, 7, 11, 13, 20, 21, 29, 30}, {}};
  for (const Decoding& decoding : decodings_of(GetParam()->format())) {
    if (!applies(decoding, bench.linear.weight) || decoding.how == "type" ||
        left_out(choice, GetParam()->block_values == 256 ? 40 : 10))
      continue;
    for (size_t part = 0; part < parts.size(); ++part) {
      const DecodingFit fit{.decoding = &decoding, .outputs = rows[part], .blocks = parts[part]};
      if (bench.same(&fit, nullptr)) continue;
      const Matrix y = bench.engine(&fit);
      // Each number is needed where rows are few, and numbers beside garbage say nothing.
      if (!std::ranges::all_of(y.values, [](double v) { return std::fabs(v) < 1e6; })) continue;
      bench.expect_found(fit, y);
    }
    // Some rows, wholly.
    const DecodingFit fit{.decoding = &decoding, .outputs = {3, 4, 5, 60}};
    if (bench.same(&fit, nullptr)) continue;
    const Matrix y = bench.engine(&fit);
    if (bench.tellable(y)) bench.expect_found(fit, y);
  }
}

TEST_P(FindDecoding, TwoAtOnce) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  Random choice(seed);
  Bench bench(*GetParam(), 29, 2 * GetParam()->block_values, 3, seed);
  const auto all = decodings_of(GetParam()->format());
  int tried = 0;
  for (int attempt = 0; attempt < 400 && tried < 2; ++attempt) {
    const Decoding& first = all[static_cast<size_t>(choice.below(std::ssize(all)))];
    const Decoding& second = all[static_cast<size_t>(choice.below(std::ssize(all)))];
    if (!first.alter || !second.alter || &first >= &second || first.how == second.how) continue;
    const DecodingFit fit{.decoding = &first, .also = &second};
    const DecodingFit alone{.decoding = &first};
    const DecodingFit other{.decoding = &second};
    if (bench.same(&fit, nullptr) || bench.same(&fit, &alone) || bench.same(&fit, &other)) continue;
    const Matrix y = bench.engine(&fit);
    if (!bench.tellable(y)) continue;
    bench.expect_found(fit, y);
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

// What is no decoding at all gets no name.
TEST_P(FindDecoding, NothingForOtherMistakes) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  Bench bench(*GetParam(), 35, 5 * GetParam()->block_values, 4, seed);
  const Matrix honest = bench.engine(nullptr);
  const auto expect_nothing = [&](const Matrix& y, const char* what) {
    const auto found = bench.find(y);
    ASSERT_FALSE(found.empty()) << what;
    for (const DecodingFit& fit : found)
      EXPECT_FALSE(fit.explains()) << what << ": " << describe(fit, bench.linear.weight);
  };
  Matrix y = honest;
  for (double& value : y.values) value *= 1.001;
  expect_nothing(y, "a factor");
  y = honest;
  for (int64_t r = 0; r < y.rows; ++r)
    for (int64_t o = 0; o + 1 < y.columns; ++o) y.row(r)[o] = honest.row(r)[o + 1];
  expect_nothing(y, "other rows");
  y = honest;
  for (double& value : y.values) value = bench.random.gaussian();
  expect_nothing(y, "noise");
  y = honest;
  for (double& value : y.values) value = std::nan("");
  expect_nothing(y, "NaN");
  y = honest;
  y.row(2)[17] += 0.5;
  expect_nothing(y, "one number");
}

// Rows that were looked up, as those of an embedding are.
TEST_P(FindDecoding, OfRowsThatWereLookedUp) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  Random choice(seed);
  Bench bench(*GetParam(), 40, 5 * GetParam()->block_values, 1, seed);
  const std::vector<int64_t> rows = {3, 39, 0, 3, 17};
  const auto look_up = [&](const DecodingFit* fit) {
    Matrix y(std::ssize(rows), bench.linear.weight.columns);
    std::vector<float> row(static_cast<size_t>(y.columns));
    for (int64_t r = 0; r < y.rows; ++r) {
      decode_fit_row(bench.linear.weight, rows[static_cast<size_t>(r)], fit, row.data());
      std::ranges::copy(row, y.row(r));
    }
    return y;
  };
  const auto search = [&](const Matrix& y) {
    return find_decoding(
        Lookup{bench.linear.weight, rows, y, parity::arithmetic_of(bench.precision, DType::kF32)});
  };
  EXPECT_TRUE(search(look_up(nullptr)).empty());
  const auto same = [&](const DecodingFit& a, const DecodingFit* b) {
    const Matrix one = look_up(&a);
    const Matrix other = look_up(b);
    for (size_t i = 0; i < one.values.size(); ++i)
      if (!(std::fabs(one.values[i] - other.values[i]) <= 1e-6 * std::fabs(one.values[i])) &&
          std::isfinite(one.values[i]) && std::isfinite(other.values[i]))
        return false;
    return true;
  };
  const auto expect = [&](const DecodingFit& fit) {
    if (same(fit, nullptr)) return;
    const auto found = search(look_up(&fit));
    ASSERT_FALSE(found.empty());
    EXPECT_TRUE(found[0].explains()) << describe(fit, bench.linear.weight);
    EXPECT_GT(found[0].rows, 0);
    for (const DecodingFit& each : found) {
      if (!each.explains()) continue;
      EXPECT_TRUE(same(each, &fit))
          << describe(fit, bench.linear.weight) << " / " << describe(each, bench.linear.weight);
    }
  };
  const auto all = decodings_of(GetParam()->format());
  const int64_t one_in = GetParam()->block_values == 256 ? 10 : 3;
  for (const Decoding& decoding : all) {
    if (!applies(decoding, bench.linear.weight) || left_out(choice, one_in)) continue;
    const DecodingFit whole{.decoding = &decoding};
    const Matrix y = look_up(&whole);
    if (std::ranges::none_of(y.values, [](double v) { return std::isfinite(v); })) continue;
    expect(whole);
    expect({.decoding = &decoding, .blocks = {1, 4}});
    const Decoding& other = all[static_cast<size_t>(choice.below(std::ssize(all)))];
    if (&decoding < &other && decoding.how != other.how && decoding.alter && other.alter &&
        !left_out(choice, 8))
      expect({.decoding = &decoding, .also = &other});
  }
  Matrix noise = look_up(nullptr);
  for (double& x : noise.values) x *= 1.01;
  const auto found = search(noise);
  ASSERT_FALSE(found.empty());
  EXPECT_FALSE(found[0].explains());
}

INSTANTIATE_TEST_SUITE_P(Formats, FindDecoding, testing::ValuesIn(block_formats()),
                         [](const auto& parameter) { return std::string(parameter.param->name); });

TEST(DecodeFit, IsTheWeightAsAnEngineHadIt) {
  Bench bench(quant::info(quant::Format::kQ6_K), 5, 3 * 256, 1, 9);
  const Decoding& decoding = decodings_of(quant::Format::kQ6_K)[0];
  const DecodingFit fit{.decoding = &decoding, .outputs = {1, 4}, .blocks = {2}};
  const auto copy = decode_fit(bench.linear.weight, fit, 2);
  EXPECT_EQ(copy->weight.format->format(), quant::Format::kF32);
  EXPECT_EQ(copy->weight.rows, 5);
  EXPECT_EQ(copy->weight.columns, 768);
  std::vector<float> truth(768), other(768), got(768);
  for (int64_t row = 0; row < 5; ++row) {
    decode_fit_row(bench.linear.weight, row, nullptr, truth.data());
    decode_row(bench.linear.weight, row, decoding, nullptr, other.data());
    quant::decode(quant::Format::kF32, copy->weight.row(row), 768, got.data());
    for (size_t i = 0; i < 768; ++i)
      EXPECT_EQ(got[i], (row == 1 || row == 4) && i >= 512 ? other[i] : truth[i]);
  }
  EXPECT_EQ(
      describe(fit, bench.linear.weight),
      decoding.words + ", in block 2 of the 3 of a row, in rows 1 and 4 of the 5 of the tensor");
}

}  // namespace
}  // namespace lockstep::doctor
