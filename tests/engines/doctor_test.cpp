// Every bug gets its cause, and nothing else does.
#include "doctor/doctor.h"

#include <cstdlib>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "lab.h"
#include "parity/scope.h"
#include "subjects.h"

namespace lockstep::engines {
namespace {

using doctor::Diagnosis;
using parity::Order;

class DoctorCorpus : public testing::TestWithParam<Subject> {
 protected:
  DoctorCorpus()
      : lab_(GetParam().file.empty() ? Lab::forged(GetParam().spec)
                                     : Lab::shipped(GetParam().file)) {
    small_ = GetParam().file.empty();
    run_.prompt = small_ ? 8 : 4;
    run_.tokens = random_tokens(17, small_ ? 12 : 6, lab_.model().config().vocabulary);
  }

  std::vector<Diagnosis> diagnose(const trace::Trace& honest, const trace::Trace& suspect,
                                  parity::Comparison* found = nullptr) const {
    parity::Scope scope;
    parity::CompareOptions options;
    options.threads = 1;
    auto comparison = parity::compare(honest, suspect, &lab_.model(), options, &scope);
    LS_CHECK(comparison.ok(), "{}", comparison.error().message);
    if (found != nullptr) *found = *comparison;
    return doctor::diagnose(*comparison, scope, &lab_.model(), {.seconds = 30, .threads = 1});
  }

  Lab lab_;
  Job run_;
  bool small_ = true;
};

// Where it is known how the doctor fares: named right, not named, named wrong.
struct Score {
  int right = 0;
  int silent = 0;
  int wrong = 0;
};

TEST_P(DoctorCorpus, CausesAreNamed) {
  Style wrong{.name = "wrong", .order = Order::kLanes8};
  // LOCKSTEP_STYLE: the same in another arithmetic that the engine declares.
  const char* style = std::getenv("LOCKSTEP_STYLE");
  const std::string arithmetic = style != nullptr ? style : "f32";
  if (arithmetic == "bf16") wrong.activations = DType::kBF16;
  if (arithmetic == "f16") wrong.activations = DType::kF16;
  if (arithmetic == "int8") wrong.int8 = true;
  std::vector<std::string> sets = {"ops"};
  if (small_ && thorough()) sets = {"ops", "all", "layers", "logits"};
  if (const char* chosen = std::getenv("LOCKSTEP_SETS")) sets = {chosen};
  const bool table = std::getenv("LOCKSTEP_TABLE") != nullptr;
  for (const std::string& set : sets) {
    run_.checkpoints = set;
    const op::Program program = lab_.program(run_);
    const auto honest = lab_.record(run_, {.name = "f32", .order = Order::kPairwise}, program);
    int64_t number = 0;
    std::map<std::string, Score> scores;
    Score all;
    for (const Bug& bug : bugs()) {
      ++number;
      const int64_t layer = bug.outside ? -1 : number % program.layers;
      const int64_t position = number % 2 == 0 ? run_.prompt - 2 : run_.prompt + 1;
      Patient patient(program);
      if (!bug.make(patient, layer, position)) continue;
      SCOPED_TRACE(fmt::format("{}, layer {}, set {}", bug.name, layer, set));
      const auto suspect = lab_.record(run_, wrong, patient);
      parity::Comparison found;
      const auto diagnoses = diagnose(honest, suspect, &found);
      if (!found.first_defect) continue;
      ASSERT_FALSE(diagnoses.empty());
      const Diagnosis& first = diagnoses.front();
      EXPECT_EQ(first.checkpoint, found.first_defect->checkpoint);
      EXPECT_EQ(first.side, parity::Side::kSuspect);
      const bool silent = first.cause == doctor::kUnknown;
      // The two are the same of a square matrix.
      const bool right = first.cause == bug.cause ||
                         (bug.cause == "weight.layout" && first.cause == "weight.transposed");
      for (Score* score : {&all, &scores[bug.cause]})
        ++(right ? score->right : silent ? score->silent : score->wrong);
      if (table && (!right || !first.alternatives.empty() || diagnoses.size() > 1))
        for (const Diagnosis& each : diagnoses)
          fmt::print("{} | {} | {} | {} | {} | {} [{}]\n", GetParam().name, set, bug.name,
                     bug.cause, each.cause, each.text, fmt::join(each.alternatives, ", "));
      if (silent) continue;
      EXPECT_TRUE(right) << first.cause << ": " << first.text;
      EXPECT_EQ(first.explained, first.rows) << first.text;
      EXPECT_EQ(diagnoses.size(), 1U) << diagnoses.back().text;
    }
    if (table)
      for (const auto& [cause, score] : scores)
        fmt::print("| {} | {} | {} | {} | {} |\n", cause, set, score.right, score.silent,
                   score.wrong);
    if (table)
      fmt::print("{} {}: right {}, not named {}, wrong {}\n", GetParam().name, set, all.right,
                 all.silent, all.wrong);
    EXPECT_EQ(all.wrong, 0);
    if (set == "logits") continue;  // many positions inherit what happened to one
    for (const auto& [cause, score] : scores)
      if (!cause.starts_with("precision.")) {
        EXPECT_EQ(score.silent, 0) << cause;
      }
  }
}

// What is right has no cause, in any arithmetic.
TEST_P(DoctorCorpus, CorrectEnginesGetNoName) {
  run_.checkpoints = "ops";
  const op::Program program = lab_.program(run_);
  const auto honest = lab_.record(run_, {.name = "f32", .order = Order::kPairwise}, program);
  for (const Style& style :
       {Style{.name = "f32", .order = Order::kLanes8},
        Style{.name = "bf16", .activations = DType::kBF16},
        Style{.name = "f16", .activations = DType::kF16}, Style{.name = "int8", .int8 = true}})
    EXPECT_TRUE(diagnose(honest, lab_.record(run_, style, program)).empty()) << style.name;
}

INSTANTIATE_TEST_SUITE_P(Models, DoctorCorpus, testing::ValuesIn(subjects()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace lockstep::engines
