// Engines that decode weights wrongly: the doctor names the tensor, its format and what is done.
#include <cmath>
#include <map>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "base/test_effort.h"
#include "clinic.h"
#include "doctor/decode_hypotheses.h"

namespace lockstep::engines {
namespace {

using doctor::Decoding;
using doctor::DecodingFit;
using doctor::Diagnosis;
using parity::Order;

std::string parameter(const Diagnosis& diagnosis, const std::string& name) {
  for (const doctor::Parameter& each : diagnosis.parameters)
    if (each.name == name) return std::get<std::string>(each.value);
  return "";
}

struct DecodingScore {
  int right = 0;
  int silent = 0;
  int wrong = 0;
};

class DoctorDecodings : public testing::TestWithParam<std::string> {
 protected:
  DoctorDecodings() {
    RecordProperty("seed", std::to_string(seed_));
    format_ = quant::find_format(GetParam());
    const int64_t width = format_->block_values > 32 ? 256 : 64;
    lab_ = std::make_unique<Lab>(Lab::forged({.arch = "llama",
                                              .layers = 2,
                                              .width = width,
                                              .heads = 4,
                                              .kv_heads = 2,
                                              .head_size = width / 4,
                                              .feed_forward = 2 * width,
                                              .vocabulary = 67,
                                              .biases = true,
                                              .type = GetParam(),
                                              .seed = seed_}));
    job_.prompt = 6;
    job_.tokens = random_tokens(seed_, 8, 67);
    program_ = lab_->program(job_);
  }

  const op::Weight& weight_at(size_t op) const { return *doctor::weight_of(program_.ops[op]); }

  std::vector<size_t> quantized_ops() const {
    std::vector<size_t> out;
    for (size_t op = 0; op < program_.ops.size(); ++op)
      if (const op::Weight* weight = doctor::weight_of(program_.ops[op]);
          weight != nullptr && weight->format == format_)
        out.push_back(op);
    return out;
  }

  std::vector<Diagnosis> diagnose(const Patient& patient, const Style& style,
                                  parity::Comparison& found) {
    const auto honest = lab_->record(job_, {.order = Order::kPairwise}, program_);
    const auto suspect = lab_->record(job_, style, patient);
    Diagnosed made = engines::diagnose(*lab_, honest, suspect);
    found = std::move(made.comparison);
    return std::move(made.diagnoses);
  }

  // Whether the numbers that the diagnosis stands for are those that the engine had.
  bool same_numbers(const op::Weight& weight, const Decoding& made, const std::string& how) const {
    const auto numbers = doctor::decode_all(weight, made, 1);
    for (const Decoding& other : doctor::decodings_of(weight.format->format())) {
      if (other.how != how || !doctor::applies(other, weight)) continue;
      const auto others = doctor::decode_all(weight, other, 1);
      double difference = 0;
      double size = 0;
      for (size_t i = 0; i < numbers.size(); ++i) {
        if (!std::isfinite(numbers[i]) || !std::isfinite(others[i])) continue;
        difference += std::pow(static_cast<double>(numbers[i]) - static_cast<double>(others[i]), 2);
        size += std::pow(static_cast<double>(numbers[i]), 2);
      }
      if (difference <= 1e-9 * size) return true;
    }
    return false;
  }

  bool is_wild(const Decoding& decoding) const {
    for (const size_t op : quantized_ops())
      if (doctor::applies(decoding, weight_at(op)))
        for (const float number : doctor::decode_all(weight_at(op), decoding, 1))
          if (!(std::fabs(number) < 1e9F)) return true;
    return false;
  }

  // In short: a few decodings, each time others.
  std::vector<const Decoding*> chosen() {
    std::vector<const Decoding*> all;
    for (const Decoding& each : doctor::decodings_of(format_->format()))
      if (doctor::applies(each, weight_at(quantized_ops()[1]))) all.push_back(&each);
    if (runs_slow_tests()) return all;
    std::vector<const Decoding*> out;
    for (int i = 0; i < 2; ++i)
      out.push_back(all[static_cast<size_t>(choice_.below(std::ssize(all)))]);
    return out;
  }

  void count(const Diagnosis& first, const Decoding& made, const std::string& set) {
    const bool right =
        first.cause == "weight.decode" ||
        std::ranges::find(first.alternatives, "weight.decode") != first.alternatives.end();
    const bool silent = first.cause == doctor::kUnknown || first.cause == "garbage";
    DecodingScore& score = scores_[set];
    ++(right ? score.right : silent ? score.silent : score.wrong);
    EXPECT_TRUE(right || silent) << first.cause << ": " << first.text;
    if (std::getenv("LOCKSTEP_TABLE") != nullptr && !right)
      fmt::print("{} | {} | {} | {} | {}\n", GetParam(), set, made.words, first.cause, first.text);
  }

  void tell() const {
    if (std::getenv("LOCKSTEP_TABLE") == nullptr) return;
    for (const auto& [set, score] : scores_)
      fmt::print("| weight.decode | {} | {} | {} | {} | {} |\n", GetParam(), set, score.right,
                 score.silent, score.wrong);
  }

  uint64_t seed_ = search_seed();
  Random choice_{seed_};
  const quant::FormatInfo* format_ = nullptr;
  std::unique_ptr<Lab> lab_;
  Job job_;
  op::Program program_;
  std::map<std::string, DecodingScore> scores_;
};

TEST_P(DoctorDecodings, OfOneTensor) {
  for (const Decoding* decoding : chosen()) {
    const auto ops = quantized_ops();
    const size_t op = ops[static_cast<size_t>(choice_.below(std::ssize(ops)))];
    if (!doctor::applies(*decoding, weight_at(op))) continue;
    SCOPED_TRACE(fmt::format("{} {} in {}, seed {}", GetParam(), decoding->words,
                             weight_at(op).name, seed_));
    Patient patient(program_);
    ASSERT_TRUE(doctor::decoded_as(program_, {.decoding = decoding}, 1)(patient.altered, op));
    parity::Comparison found;
    const bool int8 = choice_.below(4) == 0;
    const auto diagnoses = diagnose(
        patient, int8 ? Style{.name = "int8", .int8 = true} : Style{.order = Order::kLanes8},
        found);
    if (!found.first_defect) continue;
    ASSERT_FALSE(diagnoses.empty());
    const Diagnosis& first = diagnoses.front();
    count(first, *decoding, "ops");
    EXPECT_TRUE(first.cause == "weight.decode" || first.cause == "garbage") << first.text;
    if (first.cause != "weight.decode") continue;
    EXPECT_EQ(parameter(first, "tensor"), weight_at(op).name);
    EXPECT_EQ(parameter(first, "format"), GetParam());
    EXPECT_TRUE(same_numbers(weight_at(op), *decoding, parameter(first, "how"))) << first.text;
    EXPECT_TRUE(first.proved) << first.text;
    EXPECT_EQ(first.explained, first.rows) << first.text;
  }
  tell();
}

// The decoder of a format is one function: all tensors are wrong, and it is said once.
TEST_P(DoctorDecodings, OfAllTensors) {
  for (const std::string set : {"ops", "layers", "logits"}) {
    if (set == "logits" && !runs_slow_tests()) continue;
    job_.checkpoints = set;
    for (const Decoding* decoding : chosen()) {
      if (set != "ops" && choice_.below(runs_slow_tests() ? 4 : 2) != 0) continue;
      SCOPED_TRACE(fmt::format("{} {}, set {}, seed {}", GetParam(), decoding->words, set, seed_));
      Patient patient(program_);
      for (const size_t op : quantized_ops())
        doctor::decoded_as(program_, {.decoding = decoding}, 1)(patient.altered, op);
      parity::Comparison found;
      const auto diagnoses = diagnose(patient, {.order = Order::kLanes8}, found);
      if (!found.first_defect) continue;
      ASSERT_FALSE(diagnoses.empty());
      const Diagnosis& first = diagnoses.front();
      count(first, *decoding, set);
      const bool silent = first.cause == doctor::kUnknown || first.cause == "garbage";
      if (set != "ops" && silent) continue;
      EXPECT_TRUE(first.cause == "weight.decode" || first.cause == "garbage") << first.text;
      if (first.cause != "weight.decode") continue;
      EXPECT_EQ(parameter(first, "format"), GetParam());
      // Garbage in a stretch of several ops may have any reason; and numbers whose squares leave
      // single precision go wrong everywhere behind.
      const bool astray = is_wild(*decoding) || set != "ops";
      for (const Diagnosis& each : diagnoses)
        if (&each != &first && !(astray && (each.cause == "garbage" || each.cause == "unknown")))
          ADD_FAILURE() << each.cause << ": " << each.text;
    }
  }
  tell();
}

// Some blocks of each row: as of a tail, or of a tile.
TEST_P(DoctorDecodings, OfSomeBlocks) {
  for (const Decoding* decoding : chosen()) {
    if (decoding->alter == nullptr) continue;
    const auto op = *Patient(program_).find("ffn_out", 1);
    const int64_t blocks = weight_at(op).columns / format_->block_values;
    if (blocks < 2) return;
    DecodingFit fit{.decoding = decoding, .blocks = {blocks - 1}};
    SCOPED_TRACE(fmt::format("{} {}, seed {}", GetParam(), decoding->words, seed_));
    Patient patient(program_);
    ASSERT_TRUE(doctor::decoded_as(program_, fit, 1)(patient.altered, op));
    parity::Comparison found;
    const auto diagnoses = diagnose(patient, {.order = Order::kLanes8}, found);
    if (!found.first_defect) continue;
    ASSERT_FALSE(diagnoses.empty());
    const Diagnosis& first = diagnoses.front();
    // A block of zeros may also be one that is left out.
    count(first, *decoding, "some blocks");
    EXPECT_NE(first.cause, doctor::kUnknown) << first.text;
  }
  tell();
}

std::vector<std::string> forged_formats() {
  std::vector<std::string> out;
  for (const quant::FormatInfo& format : quant::all_formats())
    if (format.decodable && format.block_values > 1) out.emplace_back(format.name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Formats, DoctorDecodings, testing::ValuesIn(forged_formats()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace lockstep::engines
