// Every bug gets its cause, and nothing else does.
#include "doctor/doctor.h"

#include <cmath>
#include <cstdlib>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "base/test_effort.h"
#include "clinic.h"
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
    run_.tokens = random_tokens(seed_, small_ ? 12 : 6, lab_.model().config().vocabulary);
    RecordProperty("seed", std::to_string(seed_));
  }

  void hold_to_bugs(const std::string& set, const Style& style);

  std::vector<Diagnosis> diagnose(const trace::Trace& honest, const trace::Trace& suspect,
                                  parity::Comparison* found = nullptr) const {
    Diagnosed made =
        engines::diagnose(lab_, honest, suspect,
                          {.seconds = std::getenv("LOCKSTEP_TABLE") != nullptr ? 300.0 : 30.0});
    if (found != nullptr) *found = std::move(made.comparison);
    return std::move(made.diagnoses);
  }

  uint64_t seed_ = search_seed();
  Random choice_{seed_};
  Lab lab_;
  Job run_;
  bool small_ = true;
};

// How the doctor fares: named right, right among others that explain it as well, not named, named
// wrong.
struct Score {
  int right = 0;
  int listed = 0;
  int silent = 0;
  int wrong = 0;
};

std::vector<Style> wrong_styles() {
  return {{.name = "f32", .order = Order::kLanes8},
          {.name = "bf16", .order = Order::kLanes8, .activations = DType::kBF16},
          {.name = "f16", .order = Order::kLanes8, .activations = DType::kF16},
          {.name = "int8", .order = Order::kLanes8, .int8 = true}};
}

// The formula gives the number, from the parts that it names.
void hold_to_working(const doctor::Element& element) {
  const auto hold = [](const doctor::Working& working, double number) {
    if (!std::isfinite(number)) return;  // a score that is masked
    EXPECT_FALSE(working.formula.empty());
    EXPECT_NEAR(working.value, number, 1e-9 + 1e-7 * std::fabs(number)) << working.formula;
    EXPECT_FALSE(working.parts.empty() && number != 0) << working.formula;
  };
  hold(element.right, element.expected);
  if (element.found) hold(element.wrong, *element.found);
}

// LOCKSTEP_SETS and LOCKSTEP_STYLE choose one set of checkpoints, one arithmetic.
TEST_P(DoctorCorpus, CausesAreNamed) {
  std::vector<std::string> sets = {"ops"};
  if (small_ && thorough()) sets = {"ops", "all", "layers", "logits"};
  if (const char* chosen = std::getenv("LOCKSTEP_SETS")) sets = {chosen};
  std::vector<Style> styles = wrong_styles();
  if (!small_) styles.resize(1);
  if (const char* chosen = std::getenv("LOCKSTEP_STYLE"))
    std::erase_if(styles, [&](const Style& style) { return style.name != chosen; });
  for (const std::string& set : sets)
    for (const Style& style : styles) hold_to_bugs(set, style);
}

void DoctorCorpus::hold_to_bugs(const std::string& set, const Style& style) {
  const bool table = std::getenv("LOCKSTEP_TABLE") != nullptr;
  const bool all_bugs = style.name == "f32" || runs_slow_tests() || thorough() || table;
  run_.checkpoints = set;
  const op::Program program = lab_.program(run_);
  const auto honest = lab_.record(run_, {.name = "f32", .order = Order::kPairwise}, program);
  std::map<std::string, Score> scores;
  Score all;
  for (const Bug& bug : bugs()) {
    const int64_t layer = choice_.below(program.layers);
    const int64_t position = choice_.below(2) == 0 ? run_.prompt - 2 : run_.prompt + 1;
    Patient patient(program);
    if (!all_bugs && choice_.below(6) != 0) continue;
    if (!bug.make(patient, bug.outside ? -1 : layer, position)) continue;
    SCOPED_TRACE(fmt::format("{}, layer {}, position {}, set {}, {}, seed {}", bug.name, layer,
                             position, set, style.name, seed_));
    const auto suspect = lab_.record(run_, style, patient);
    parity::Comparison found;
    const auto diagnoses = diagnose(honest, suspect, &found);
    if (!found.first_defect) continue;
    ASSERT_FALSE(diagnoses.empty());
    const Diagnosis& first = diagnoses.front();
    EXPECT_EQ(first.checkpoint, found.first_defect->checkpoint);
    EXPECT_EQ(first.side, parity::Side::kSuspect);
    const bool silent = first.cause == doctor::kUnknown;
    // The two are the same of a square matrix.
    const auto is_right = [&](const std::string& cause) {
      return cause == bug.cause || (bug.cause == "weight.layout" && cause == "weight.transposed");
    };
    const bool right = is_right(first.cause);
    const bool listed = std::ranges::any_of(first.alternatives, is_right);
    for (Score* score : {&all, &scores[bug.cause]})
      ++(right ? score->right : listed ? score->listed : silent ? score->silent : score->wrong);
    if (table && (!right || !first.alternatives.empty() || diagnoses.size() > 1))
      for (const Diagnosis& each : diagnoses)
        fmt::print("{} | {} | {} | {} | {} | {} | {} [{}]\n", GetParam().name, set, style.name,
                   bug.name, bug.cause, each.cause, each.text, fmt::join(each.alternatives, ", "));
    // Ops of routing have no formula for one number.
    const bool routing = bug.cause.starts_with("experts.") && bug.cause != "experts.shared_missing";
    if (first.element && !routing && (set == "ops" || set == "all"))
      hold_to_working(*first.element);
    if (silent) continue;
    EXPECT_TRUE(right || listed) << first.cause << ": " << first.text;
    EXPECT_FALSE(listed && first.proved) << first.text;
    EXPECT_EQ(first.explained, first.rows) << first.text;
    EXPECT_EQ(diagnoses.size(), 1U) << diagnoses.back().text;
  }
  if (table) {
    for (const auto& [cause, score] : scores)
      fmt::print("| {} | {} | {} | {} | {} | {} | {} |\n", cause, set, style.name, score.right,
                 score.listed, score.silent, score.wrong);
    fmt::print("{} {} {}: right {}, listed {}, not named {}, wrong {}\n", GetParam().name, set,
               style.name, all.right, all.listed, all.silent, all.wrong);
  }
  if (set == "logits") return;  // many positions inherit what happened to one
  for (const auto& [cause, score] : scores)
    if (!cause.starts_with("precision.")) {
      // A tiny mistake may drown in a coarse type's rounding.
      EXPECT_LE(score.silent, style.name == "f32" ? 0 : 1) << cause;
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

INSTANTIATE_TEST_SUITE_P(Routed, DoctorCorpus, testing::ValuesIn(routed_subjects()),
                         [](const auto& parameter) { return parameter.param.name; });
INSTANTIATE_TEST_SUITE_P(Models, DoctorCorpus, testing::ValuesIn(subjects()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace lockstep::engines
