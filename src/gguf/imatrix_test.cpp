#include "gguf/imatrix.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "base/random.h"
#include "gguf/quantize.h"
#include "gguf/test_support.h"
#include "quant/decode.h"

namespace lockstep::gguf {
namespace {

using test::TempFolder;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// llama.cpp's older form.
class Dat {
 public:
  Dat& number(int32_t value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Dat& name(const std::string& name) {
    number(static_cast<int32_t>(name.size()));
    text += name;
    return *this;
  }
  Dat& floats(const std::vector<float>& values) {
    number(static_cast<int32_t>(values.size()));
    text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    return *this;
  }
  std::string problem() const {
    const auto parsed = Imatrix::parse(bytes_of(text), "x.dat");
    return parsed.ok() ? "" : parsed.error().message;
  }
  std::string text;
};

TEST(Imatrix, WhatIsWrittenIsRead) {
  const TempFolder folder;
  Random random(4);
  Imatrix made;
  made.dataset = "text.txt";
  made.chunks = 7;
  made.chunk_size = 512;
  for (const int64_t columns : std::vector<int64_t>{1, 7, 256}) {
    Imatrix::Sums& sums = made.tensors[fmt::format("blk.{}.attn_q.weight", columns)];
    for (int64_t i = 0; i < 3 * columns; ++i)
      sums.squares.push_back(static_cast<double>(static_cast<float>(random.uniform())));
    sums.counts = {5, 0, 2};
  }
  const std::string path = folder.file("m.imatrix");
  ASSERT_TRUE(made.write(path).ok());
  const auto read = Imatrix::read(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->dataset, "text.txt");
  EXPECT_EQ(read->chunks, 7);
  EXPECT_EQ(read->chunk_size, 512);
  ASSERT_EQ(read->tensors.size(), made.tensors.size());
  for (const auto& [name, sums] : made.tensors) {
    EXPECT_EQ(read->tensors.at(name).squares, sums.squares);
    EXPECT_EQ(read->tensors.at(name).counts, sums.counts);
  }
  // As llama.cpp names and shapes them.
  const auto file = File::open(path);
  EXPECT_EQ(*file->text("general.type"), "imatrix");
  EXPECT_EQ(file->tensor("blk.7.attn_q.weight.in_sum2")->dims, (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(file->tensor("blk.7.attn_q.weight.counts")->dims, (std::vector<int64_t>{1, 3}));

  const auto means = read->means("blk.7.attn_q.weight", std::vector<int64_t>{7, 11, 3});
  ASSERT_TRUE(means.ok());
  const auto& squares = made.tensors.at("blk.7.attn_q.weight").squares;
  EXPECT_EQ((*means)[3], static_cast<float>(squares[3] / 5));
  EXPECT_EQ((*means)[9], 1);  // an expert that met no token
  EXPECT_EQ((*means)[20], static_cast<float>(squares[20] / 2));
  EXPECT_TRUE(read->means("blk.8.attn_q.weight", std::vector<int64_t>{7, 11})->empty());
  EXPECT_EQ(
      read->means("blk.7.attn_q.weight", std::vector<int64_t>{8, 11}).error().message,
      path + ": blk.7.attn_q.weight has 21 values; the tensor's 1 matrix of 8 columns need 8");
}

TEST(Imatrix, TheOlderFormIsRead) {
  Dat dat;
  dat.number(2).name("a.weight").number(4).floats({4, 8});
  dat.name("b.weight").number(0).floats({1, 2, 3});
  for (const bool with_end : {false, true}) {
    if (with_end) dat.number(9).name("wiki.txt");
    const auto read = Imatrix::parse(bytes_of(dat.text), "x.dat");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read->means("a.weight", std::vector<int64_t>{2, 5}), (std::vector<float>{1, 2}));
    EXPECT_EQ(*read->means("b.weight", std::vector<int64_t>{3, 5}), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(read->chunks, with_end ? 9 : 0);
    EXPECT_EQ(read->dataset, with_end ? "wiki.txt" : "");
  }
  for (size_t size = 0; size < dat.text.size(); ++size) {
    const auto read = Imatrix::parse(bytes_of(dat.text).first(size), "x.dat");
    const size_t entries = dat.text.size() - 4 - 4 - 8;
    EXPECT_EQ(read.ok(), size == entries) << size;
  }
}

TEST(Imatrix, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(Dat().problem(), "x.dat: ends at byte 0 within the number of entries");
  EXPECT_EQ(Dat().number(0).problem(), "x.dat: no entries; expected an importance matrix");
  EXPECT_EQ(Dat().number(1'000'000).number(0).problem(),
            "x.dat: found 1000000 as the number of entries at byte 0, with 4 bytes left");
  EXPECT_EQ(Dat().number(1).number(-5).number(0).number(0).problem(),
            "x.dat: found -5 as the length of a name at byte 4, with 8 bytes left");
  EXPECT_EQ(Dat().number(1).name("a").number(1).floats({1, -2}).problem(),
            "x.dat: a: expected values that are finite and not negative");
  EXPECT_EQ(Dat().number(1).name("a").number(1).floats({std::nanf("")}).problem(),
            "x.dat: a: expected values that are finite and not negative");
  EXPECT_EQ(Dat().number(1).name("abcd").number(1).floats({}).problem(),
            "x.dat: abcd: expected values that are finite and not negative");
  Dat twice;
  twice.number(2).name("a").number(1).floats({1}).name("a").number(1).floats({1});
  EXPECT_EQ(twice.problem(), "x.dat: a stands there twice");
  EXPECT_EQ(Imatrix::parse(bytes_of(file_without_tensors({})), "x.gguf").error().message,
            "x.gguf: general.type is '', expected 'imatrix': this is no importance matrix");
  const std::vector<Entry> typed = {{"general.type", {std::string("imatrix")}}};
  EXPECT_EQ(Imatrix::parse(bytes_of(file_without_tensors(typed)), "x.gguf").error().message,
            "x.gguf: no entries; expected an importance matrix");
}

// Errors where inputs are large become smaller, at the price of others.
TEST(Imatrix, QuantizingHeedsIt) {
  const TempFolder folder;
  Random random(11);
  constexpr int64_t kColumns = 256, kRows = 24, kExperts = 2;
  std::vector<float> values;
  for (int64_t i = 0; i < kColumns * kRows * kExperts; ++i)
    values.push_back(static_cast<float>(random.gaussian()));
  const std::vector<TensorPlan> plans = {
      {"blk.0.ffn_up_exps.weight", &quant::info(quant::Format::kF32), {kColumns, kRows, kExperts}}};
  const std::vector<Entry> metadata = {{"general.architecture", {std::string("llama")}}};
  {
    auto writer = Writer::create(folder.file("f32.gguf"), metadata, plans);
    ASSERT_TRUE(writer->write(std::as_bytes(std::span(values))).ok());
    ASSERT_TRUE(writer->finish().ok());
  }
  const File source = File::open(folder.file("f32.gguf")).value();
  Imatrix imatrix;
  Imatrix::Sums& sums = imatrix.tensors["blk.0.ffn_up_exps.weight"];
  for (int64_t i = 0; i < kColumns * kExperts; ++i)
    sums.squares.push_back(std::exp(3 * random.gaussian()));
  sums.counts = {3, 5};
  const std::vector<float> means = imatrix.means(plans[0].name, plans[0].dims).value();

  for (const char* type :
       {"Q2_K", "Q3_K_S", "Q4_K_S", "Q5_K_S", "Q6_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4"}) {
    double errors[2] = {}, plain_errors[2] = {};
    for (const bool weighted : {false, true}) {
      QuantizeOptions options{.recipe = quant::find_recipe(type), .pure = true};
      if (weighted) options.imatrix = &imatrix;
      const QuantizePlan plan = plan_quantization(source, options).value();
      const std::string path = folder.file(fmt::format("{}-{}.gguf", type, weighted));
      ASSERT_TRUE(quantize(source, plan, path, [](int64_t) {}).ok());
      const File written = File::open(path).value();
      EXPECT_EQ(written.find("quantize.imatrix.entries_count") != nullptr, weighted);
      std::vector<float> decoded(values.size());
      const Tensor& tensor = written.tensors()[0];
      quant::decode(tensor.format->format(), tensor.data.data(), tensor.values(), decoded.data());
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t expert = i / (kColumns * kRows);
        const double miss = static_cast<double>(decoded[i]) - static_cast<double>(values[i]);
        errors[weighted] +=
            miss * miss * static_cast<double>(means[expert * kColumns + i % kColumns]);
        plain_errors[weighted] += miss * miss;
      }
    }
    EXPECT_LT(errors[1], 0.95 * errors[0]) << type;
    EXPECT_GT(plain_errors[1], plain_errors[0]) << type;
  }
}

}  // namespace
}  // namespace lockstep::gguf
