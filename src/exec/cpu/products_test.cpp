// Products of every format: each column has the bits that it has alone, on every target, whatever
// columns stand beside it and however the panels are shared out.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "exec/cpu/columns.h"
#include "exec/cpu/kernels/targets.h"
#include "exec/cpu/pack.h"
#include "quant/decode.h"

namespace lockstep::exec::cpu {
namespace {

struct Case {
  std::vector<std::byte> file, panels;
  op::Weight weight;
  std::vector<float> bias;
};

Case make(std::mt19937& random, const quant::FormatInfo& format, int64_t rows, int64_t columns) {
  Case out;
  out.file.resize(static_cast<size_t>(quant::size_bytes(format, rows * columns)));
  // Any bits are codes; these keep half-precision scales, and floats, finite.
  for (std::byte& byte : out.file) byte = static_cast<std::byte>(random() % 60);
  out.weight = {"weight", &format, rows, columns, out.file};
  const int64_t bytes = panel_bytes(out.weight);
  out.panels.resize(static_cast<size_t>(panel_count(out.weight) * bytes));
  for (int64_t i = 0; i < panel_count(out.weight); ++i)
    pack_panel(out.weight, i, out.panels.data() + i * bytes);
  out.bias.resize(static_cast<size_t>(rows));
  for (float& value : out.bias) value = static_cast<float>(random() % 1000) / 7;
  return out;
}

// [count, rows], computed `step` panels at a time.
std::vector<float> multiply(const Case& test, const Kernels& kernels, const float* x, int64_t count,
                            int64_t step) {
  const op::Weight& weight = test.weight;
  ColumnBuffer buffer;
  buffer.set_up(takes_codes(weight), !takes_codes(weight));
  buffer.reserve(weight.columns, count);
  buffer.fill(kernels, x, weight.columns, count, 0, count);
  const Columns view = buffer.view(weight.columns, count);
  std::vector<float> out(static_cast<size_t>(weight.rows * count));
  HugeVector<std::byte> scratch(static_cast<size_t>(product_scratch_bytes(count)));
  const Product product{.panels = test.panels.data(),
                        .panel_bytes = panel_bytes(weight),
                        .rows = weight.rows,
                        .x = &view,
                        .out = out.data(),
                        .out_stride = weight.rows,
                        .bias = test.bias.data(),
                        .scratch = scratch.data()};
  const int64_t panels = panel_count(weight);
  for (int64_t panel = 0; panel < panels; panel += step)
    product_kernel(kernels, weight)(product, panel, std::min(panel + step, panels));
  return out;
}

TEST(Products, AColumnHasTheSameBitsAloneAndAmongOthersOnEveryTarget) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const quant::FormatInfo& format : quant::all_formats()) {
    if (!format.decodable) continue;
    const int64_t unit = format.block_values > 32 ? format.block_values : 32;
    const int64_t rows = 1 + static_cast<int64_t>(random() % 150);
    const int64_t columns = unit * (1 + static_cast<int64_t>(random() % (unit > 32 ? 3 : 20)));
    const Case test = make(random, format, rows, columns);
    constexpr int64_t kMost = 30;
    std::vector<float> x(static_cast<size_t>(kMost * columns));
    for (float& value : x)
      value = std::normal_distribution<float>()(random) * static_cast<float>(random() % 5);
    std::vector<float> alone;
    for (int64_t c = 0; c < kMost; ++c)
      for (const float value :
           multiply(test, *targets().back().kernels, x.data() + c * columns, 1, 4))
        alone.push_back(value);
    for (const Target& target : targets()) {
      if (!target.supported()) continue;
      for (int64_t count = 1; count <= kMost; count += count < 13 ? 1 : 5) {
        const std::vector<float> out = multiply(test, *target.kernels, x.data(), count,
                                                1 + static_cast<int64_t>(random() % 6));
        EXPECT_EQ(std::memcmp(out.data(), alone.data(), out.size() * sizeof(float)), 0)
            << format.name << " on " << target.name << ": " << rows << " x " << columns << ", "
            << count << " columns";
      }
    }
  }
}

// A row each. Above these the sum of codes is beyond what floats hold, before it is scaled.
TEST(Products, EveryExponentOfMxfp4IsItsPowerOfTwo) {
  constexpr int64_t kRows = 235, kColumns = 32;
  const quant::FormatInfo& format = quant::info(quant::Format::kMXFP4);
  std::mt19937 random(1);
  Case test = make(random, format, kRows, kColumns);
  for (int64_t row = 0; row < kRows; ++row) {
    std::byte* block = test.file.data() + row * format.block_bytes;
    block[0] = static_cast<std::byte>(row);
    for (int64_t i = 1; i < format.block_bytes; ++i) block[i] = static_cast<std::byte>(random());
  }
  for (int64_t i = 0; i < panel_count(test.weight); ++i)
    pack_panel(test.weight, i, test.panels.data() + i * panel_bytes(test.weight));
  test.bias.assign(kRows, 0);
  for (int64_t column = 0; column < kColumns; ++column) {
    std::vector<float> x(kColumns);
    x[static_cast<size_t>(column)] = 1;
    for (const Target& target : targets()) {
      if (!target.supported()) continue;
      const std::vector<float> out = multiply(test, *target.kernels, x.data(), 1, 3);
      for (int64_t row = 0; row < kRows; ++row) {
        float numbers[kColumns];
        quant::decode(format.format(), test.weight.row(row), kColumns, numbers);
        const float number = numbers[column];
        EXPECT_NEAR(out[static_cast<size_t>(row)], number, 2e-7 * std::abs(number) + 0x1p-149)
            << "exponent " << row << ", column " << column << " on " << target.name;
      }
    }
  }
}

TEST(HugeVector, KeepsItsNumbersAsItGrowsAndAlignsThem) {
  HugeVector<float> numbers;
  for (size_t size = 1; size < 3'000'000; size = size * 7 + 1) {
    numbers.resize(size, static_cast<float>(size));
    EXPECT_EQ(numbers.front(), 1);
    EXPECT_EQ(numbers.back(), static_cast<float>(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(numbers.data()) % HugePages<float>::kLine, 0u);
  }
  EXPECT_THROW(HugePages<float>().allocate(~size_t{0}), std::bad_alloc);
}

}  // namespace
}  // namespace lockstep::exec::cpu
