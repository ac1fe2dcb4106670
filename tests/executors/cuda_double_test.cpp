// Double precision on the GPU against the CPU's, one line a case. tests/gpu/run calls it where
// there is a GPU; elsewhere every test is skipped.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "exec/cuda/executor.h"
#include "exec/cuda/f64/executor.h"
#include "exec/cuda/f64/products.h"
#include "exec/f64/products.h"
#include "executors/models.h"
#include "executors/run.h"
#include "model/archs.h"
#include "model/model.h"
#include "parity/noise_linear.h"
#include "parity/noise_test_support.h"
#include "quant/encode.h"

namespace lockstep {
namespace {

using exec::f64::Factor;
using exec::f64::Part;
using exec::f64::Task;
using exec::reference::Matrix;

class CudaDouble : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto there = exec::cuda::available(); !there.ok())
      GTEST_SKIP() << "no NVIDIA GPU: " << there.error().message;
  }

  struct Given {
    std::vector<std::byte> bytes;
    op::Weight weight;
    Matrix x;
    Matrix few;
  };

  enum class Numbers { kSingle, kDouble, kNotFinite };

  Given given(quant::Format format, int64_t weight_rows, int64_t columns, int64_t rows,
              Numbers numbers) {
    Given out;
    const quant::FormatInfo& info = quant::info(format);
    std::vector<float> floats(static_cast<size_t>(weight_rows * columns));
    for (float& x : floats) x = static_cast<float>(random_.gaussian());
    out.bytes.resize(static_cast<size_t>(quant::size_bytes(info, weight_rows * columns)));
    quant::encode(format, floats.data(), weight_rows * columns, out.bytes.data());
    out.weight = {"weight", &info, weight_rows, columns, out.bytes};
    out.x = Matrix(rows, columns);
    for (double& x : out.x.values) {
      x = random_.gaussian() * std::exp(5 * random_.gaussian());
      if (numbers == Numbers::kSingle) x = static_cast<double>(static_cast<float>(x));
      if (numbers == Numbers::kNotFinite && random_.below(300) == 0)
        x = random_.below(2) == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
    }
    out.few = Matrix(rows, (columns + exec::f64::kSummedSquares - 1) / exec::f64::kSummedSquares);
    for (double& x : out.few.values) x = random_.uniform();
    return out;
  }

  // Product, sums, partial sums, their squares, and the two other estimates, in one list.
  static std::vector<double> all(exec::f64::Products& products, const Task& task) {
    const auto each = static_cast<size_t>(task.rows() * task.weight.rows);
    std::vector<double> out(6 * each, -1e300);
    products.run(task, 3, [&](const Part& part) {
      for (int64_t t = 0; t < part.rows; ++t)
        for (int64_t i = 0; i < part.columns; ++i) {
          const int64_t from = t * part.stride + i;
          size_t to =
              static_cast<size_t>((part.first_row + t) * task.weight.rows + part.first_column + i);
          const auto put = [&](double number) {
            out[to] = number;
            to += each;
          };
          put(part.product[from]);
          put(static_cast<double>(part.estimates[0].sum[from]));
          put(static_cast<double>(part.estimates[0].partial[from]));
          put(static_cast<double>(part.estimates[0].partial_squares[from]));
          put(static_cast<double>(part.estimates[1].sum[from]));
          put(static_cast<double>(part.estimates[2].sum[from]));
        }
    });
    return out;
  }

  // Products have the bits of the CPU's; estimates are as near as single precision can be.
  void check(const std::string& name, const Given& g, bool squared) {
    const exec::f64::EstimateRows rows(g.x, false, 2);
    const exec::f64::EstimateRows squares(g.x, true, 2);
    const exec::f64::EstimateRows few(g.few, false, 2);
    const Task task{g.weight,
                    &g.x,
                    squared,
                    {{Factor::kWeights, &rows, true},
                     {Factor::kSquares, &squares},
                     {Factor::kSumsOfSquares, &few}}};
    exec::f64::Products products(exec::cuda::create_products().value(), 0);
    const auto actual = all(products, task);
    ASSERT_EQ(products.failure(), "");
    const auto expected = all(exec::f64::cpu_products(), task);
    const size_t each = expected.size() / 6;
    int64_t other_bits = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
      if (std::bit_cast<uint64_t>(expected[i]) == std::bit_cast<uint64_t>(actual[i])) continue;
      ASSERT_GE(i, each) << name << ": product " << i << " is " << actual[i] << ", should be "
                         << expected[i] << ", seed " << seed_;
      ++other_bits;
      const double size = std::fabs(expected[i]) + static_cast<double>(g.x.columns);
      ASSERT_NEAR(actual[i], expected[i], 1e-4 * size) << name << ", seed " << seed_;
    }
    fmt::print("ok    {}: same bits, {} estimates off by a rounding\n", name, other_bits);
  }

  // Runs `program` in several ways; what it shows is what the CPU computes, but for functions whose
  // last digit differs.
  void check_reference(const std::string& name, const op::Program& program,
                       std::span<const exec::TokenId> ids, double most, bool whole_model) {
    ASSERT_FALSE(ids.empty()) << name;
    const Outcome expected = run(program, ids, {.device = "reference-cpu", .watched = true});
    auto executor = exec::cuda::create_reference(program);
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    const Outcome whole = run(**executor, program, ids, {.watched = true});
    expect_close(whole, expected, most);
    const double worst = nmse(whole.logits, expected.logits);
    EXPECT_LE(worst, most) << name << ", seed " << seed_;
    Way last;
    last.all_logits = false;
    for (const bool watched : {false, true}) {
      (*executor)->rewind(0);
      Way pieces{.steps = {7, 1, 13, 4}, .watched = watched};
      EXPECT_EQ(bits(run(**executor, program, ids, pieces).logits), bits(whole.logits)) << name;
      if (!whole_model) continue;  // ops alone have all their rows
      (*executor)->rewind(0);
      last.watched = watched;
      const auto alone = bits(run(**executor, program, ids, last).logits);
      const auto all = bits(whole.logits);
      ASSERT_EQ(alone.size(), all.size() / ids.size()) << name;
      EXPECT_TRUE(std::equal(alone.rbegin(), alone.rend(), all.rbegin())) << name;
    }
    fmt::print("{} {}: NMSE {:.1e}\n", worst <= most ? "ok   " : "WRONG", name, worst);
  }

  uint64_t seed_ = std::random_device{}();
  Random random_{seed_};
};

TEST_F(CudaDouble, ProductsInEveryFormat) {
  for (const quant::FormatInfo& info : quant::all_formats()) {
    if (!info.decodable || !quant::encodable(info.format())) continue;
    for (const int64_t blocks : {1, 3, 17})
      for (const Numbers numbers : {Numbers::kSingle, Numbers::kDouble}) {
        const int64_t rows = 1 + random_.below(90);
        check(
            fmt::format("{}, {} blocks, {} rows", info.name, blocks, rows),
            given(info.format(), 1 + random_.below(150), blocks * info.block_values, rows, numbers),
            random_.below(2) == 0);
      }
  }
}

TEST_F(CudaDouble, ProductsOfAllSizesAndNumbers) {
  for (const int64_t columns : {1, 7, 255, 256, 257, 1000, 4099})
    for (const int64_t rows : {1, 2, 4, 5, 33, 257})
      for (const int64_t weight_rows : {1, 63, 257})
        for (const Numbers numbers : {Numbers::kSingle, Numbers::kDouble, Numbers::kNotFinite})
          check(fmt::format("{} x {} times {} rows, kind {}", weight_rows, columns, rows,
                            static_cast<int>(numbers)),
                given(quant::Format::kF32, weight_rows, columns, rows, numbers), false);
}

// More than is in the GPU's memory at a time.
TEST_F(CudaDouble, ProductsInParts) {
  check("a long weight", given(quant::Format::kQ8_0, 70'000, 512, 100, Numbers::kDouble), false);
  check("long rows", given(quant::Format::kF16, 300, 40'000, 700, Numbers::kSingle), false);
}

// What a judgement asks for: the same values and limits of what rounding explains, but for the
// order of the CPU's sums.
TEST_F(CudaDouble, Judgements) {
  for (const auto& [compute, activations] : {std::pair("f32", "f32"),
                                             {"f32", "f16"},
                                             {"f32", "i16"},
                                             {"f32", "by_weight"},
                                             {"f64", "f64"},
                                             {"f32", "e4m3:row"},
                                             {"f32", "int8:block32"}})
    for (const int64_t columns : {257, 768}) {
      const quant::Format format = columns == 768 ? quant::Format::kQ4_K : quant::Format::kF32;
      const Given g =
          given(format, 1 + random_.below(200), columns, 1 + random_.below(70), Numbers::kSingle);
      const op::Linear linear{g.weight, {}};
      const parity::LinearNoise noise(linear, g.x, parity::arithmetic(compute, activations), 2);
      exec::f64::Products products(exec::cuda::create_products().value(), 0);
      const auto there = noise.evaluate(products);
      const auto here = noise.evaluate();
      EXPECT_EQ(products.failure(), "");
      const double size = std::sqrt(static_cast<double>(columns));  // of a product
      for (size_t i = 0; i < here.value.values.size(); ++i) {
        const double limit = here.at_least.values[i];
        ASSERT_NEAR(there.value.values[i], here.value.values[i], 1e-13 * size) << "seed " << seed_;
        ASSERT_NEAR(there.at_least.values[i], limit, 1e-9 * limit) << "seed " << seed_;
      }
      EXPECT_EQ(bits(noise.at_least(here.value, products).values), bits(here.at_least.values));
      fmt::print("ok    {} {}, {} columns\n", compute, activations, columns);
    }
}

TEST_F(CudaDouble, ReferenceOps) {
  for (const OpCase& item : op_cases()) {
    SCOPED_TRACE(fmt::format("{}, seed {}", item.name, seed_));
    CaseBuilder builder(seed_);
    item.build(builder);
    const op::Program& program = builder.finish();
    check_reference(item.name, program, builder.ids, 1e-28, false);
  }
}

TEST_F(CudaDouble, ReferenceModels) {
  const auto folder = TemporaryFolder::create();
  ASSERT_TRUE(folder.ok());
  const std::string path = (folder->path() / "model.gguf").string();
  for (const model::Architecture& arch : model::architectures())
    for (const std::string& type : some_types(arch.name, random_)) {
      const auto written = forge::write_model(small_spec(arch.name, type, random_.next()), path,
                                              forge::Existing::kReplace);
      ASSERT_TRUE(written.ok()) << written.error().message;
      const auto model = model::Model::load(path);
      ASSERT_TRUE(model.ok()) << model.error().message;
      const auto program = model->program(45);
      ASSERT_TRUE(program.ok()) << program.error().message;
      const auto ids = random_tokens(random_, program->vocabulary, 45);
      check_reference(fmt::format("{} {}", arch.name, type), *program, ids, 1e-25, true);
    }
}

}  // namespace
}  // namespace lockstep
