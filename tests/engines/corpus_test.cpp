// Every bug in every architecture is found where it is, on the side that has it; correct engines
// of any precision and order raise no alarm.
#include <cstdlib>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "lab.h"
#include "subjects.h"

namespace lockstep::engines {
namespace {

using parity::Order;

std::vector<Style> honest_styles() {
  std::vector<Style> out;
  for (const Order order : parity::kOrders)
    out.push_back({.name = fmt::format("f32, {}", name(order)), .order = order});
  out.push_back({.name = "f64", .doubles = true});
  out.push_back({.name = "f64, lanes", .doubles = true, .order = Order::kLanes8});
  out.push_back({.name = "f64 recorded in f32", .doubles = true, .shows_floats = true});
  out.push_back({.name = "f32, f16 cache", .kv = DType::kF16});
  out.push_back({.name = "f32, bf16 cache", .order = Order::kLanes8, .kv = DType::kBF16});
  out.push_back({.name = "bf16 activations", .activations = DType::kBF16});
  out.push_back({.name = "f16 activations", .order = Order::kBlocks32, .activations = DType::kF16});
  out.push_back({.name = "int8", .int8 = true});
  out.push_back({.name = "f32, masked with -1e9", .masked = -1e9});
  out.push_back({.name = "f32, masked with -65504", .order = Order::kLanes16, .masked = -65504});
  return out;
}

// Of the honest engines a part will do there.
bool skips(int64_t number, bool small) {
  return !thorough() && !small && number % 3 != 0;
}

class Corpus : public testing::TestWithParam<Subject> {
 protected:
  Corpus()
      : lab_(GetParam().file.empty() ? Lab::forged(GetParam().spec)
                                     : Lab::shipped(GetParam().file)) {
    small_ = GetParam().file.empty();
    run_.prompt = small_ ? 8 : 4;
    run_.tokens = random_tokens(5, small_ ? 12 : 6, lab_.model().config().vocabulary);
  }

  std::string describe(const parity::Comparison& c) const {
    if (!c.first_defect) return fmt::format("{}, no defect", c.verdict);
    const auto& d = *c.first_defect;
    return fmt::format(
        "{}: {} at {} ({}), error {:.3g}, expected {:.3g}, element {:.3g}, {:.8g} for {:.8g}",
        c.verdict, d.checkpoint, d.position, name(d.side), d.own.error, d.own.expected,
        d.own.worst_ratio, d.own.recorded, d.own.replayed);
  }

  // The lines of `drowned` for these sets.
  static std::string drowned_in(const std::vector<std::string>& sets) {
    std::string out;
    std::istringstream lines(GetParam().drowned);
    for (std::string line; std::getline(lines, line);)
      if (std::ranges::count(sets, line.substr(0, line.find(": "))) > 0) out += line + "\n";
    return out;
  }

  Lab lab_;
  Job run_;
  bool small_ = true;
};

TEST_P(Corpus, CorrectEnginesRaiseNoAlarm) {
  int64_t number = 0;
  for (const std::string set : {"all", "ops", "layers", kThin, "logits"}) {
    if (!small_ && !thorough() && set != "ops" && set != "layers") continue;
    run_.checkpoints = set;
    const op::Program program = lab_.program(run_);
    const auto reference = lab_.record(run_, {.name = "f32", .order = Order::kPairwise}, program);
    double worst = 0;
    for (const Style& style : honest_styles()) {
      if (skips(++number, small_)) continue;
      SCOPED_TRACE(fmt::format("{}, {}", set, style.name));
      const auto suspect = lab_.record(run_, style, program);
      const auto found = lab_.compare(reference, suspect);
      EXPECT_TRUE(found.parity) << describe(found);
      EXPECT_FALSE(found.first_defect) << describe(found);
      EXPECT_EQ(found.coverage, 1);
      EXPECT_EQ(found.judged, 1);
      for (const auto& c : found.checkpoints) worst = std::max(worst, c.suspect.worst->ratio());
    }
    RecordProperty(fmt::format("worst_ratio_{}", set.substr(0, 6)), fmt::format("{:.3f}", worst));
  }
}

TEST_P(Corpus, BugsAreFoundWhereTheyAre) {
  std::vector<std::string> sets = {"ops"};
  // In coarser sets a choice of experts is recorded, which a bug before it need not change.
  const bool routed = lab_.model().config().experts.count > 0;
  if (!routed && (thorough() || (small_ && runs_slow_tests())))
    sets = {"ops", kThin, "all", "layers"};
  const Style wrong{.name = "wrong", .order = Order::kLanes8};
  std::string drowned;
  for (size_t set_number = 0; set_number < sets.size(); ++set_number) {
    const std::string& set = sets[set_number];
    // The same layers in every set, and other positions. Bugs that are added move none before them.
    constexpr int64_t kNumbersOfASet = 75;
    int64_t number = kNumbersOfASet * static_cast<int64_t>(set_number);
    run_.checkpoints = set;
    const op::Program program = lab_.program(run_);
    const auto reference = lab_.record(run_, {.name = "f64", .doubles = true}, program);
    const auto other = lab_.record(run_, {.name = "f32", .order = Order::kPairwise}, program);
    int tried = 0;
    for (const Bug& bug : bugs()) {
      ++number;
      const int64_t layer = bug.outside ? -1 : number % program.layers;
      // In the prompt, or while generating.
      const int64_t position = number % 2 == 0 ? run_.prompt - 2 : run_.prompt + 1;
      Patient patient(program);
      const auto value = bug.make(patient, layer, position);
      if (!value) continue;
      ++tried;
      SCOPED_TRACE(fmt::format("{}, layer {}, set {}", bug.name, layer, set));
      const auto suspect = lab_.record(run_, wrong, patient);
      const std::string expected = first_reached(program, *value, suspect);
      const auto& honest = number % 2 == 0 ? reference : other;
      const auto found = lab_.compare(honest, suspect);
      const bool may_drown =
          (bug.subtle && (set == "layers" || set == kThin)) || (bug.tiny && !small_);
      if (may_drown && !found.first_defect) {
        drowned += fmt::format("{}: {}\n", set, bug.name);
        continue;
      }
      ASSERT_TRUE(found.first_defect) << "expected " << expected << "; " << describe(found);
      EXPECT_FALSE(found.parity);
      EXPECT_EQ(found.first_defect->checkpoint, expected) << describe(found);
      EXPECT_EQ(found.first_defect->side, parity::Side::kSuspect) << describe(found);
      // Where the value itself was not recorded, its NaN may have reached other rows meanwhile.
      if (bug.one_row && expected == program.value(*value).name) {
        EXPECT_EQ(found.first_defect->position, position) << describe(found);
      }
      if (!thorough() && tried % 2 != 0) continue;
      const auto swapped = lab_.compare(suspect, honest);
      ASSERT_TRUE(swapped.first_defect);
      EXPECT_EQ(swapped.first_defect->checkpoint, expected);
      EXPECT_EQ(swapped.first_defect->side, parity::Side::kReference);
    }
    EXPECT_EQ(tried, GetParam().bugs) << set;
  }
  // More sets, more of them drown.
  if (small_ || !thorough()) {
    EXPECT_EQ(drowned, drowned_in(sets));
  }
}

INSTANTIATE_TEST_SUITE_P(Routed, Corpus, testing::ValuesIn(routed_subjects()),
                         [](const auto& parameter) { return parameter.param.name; });
INSTANTIATE_TEST_SUITE_P(Models, Corpus, testing::ValuesIn(subjects()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace lockstep::engines
