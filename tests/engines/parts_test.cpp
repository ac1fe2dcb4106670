// A comparison that was cut into parts and merged tells the same as a whole one, to the last bit of
// its report's data: clean engines, engines with bugs, garbage, and those that do not say their
// precision.
#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "base/test_effort.h"
#include "lab.h"
#include "parity/part.h"
#include "report/compared.h"
#include "report/json.h"
#include "rewrite.h"
#include "subjects.h"

namespace lockstep::engines {
namespace {

using parity::Findings;

constexpr int64_t kPageBytes = 4'000'000;
const report::Diagnosing kDiagnosing = {.depth = 3, .seconds = 120};

// Some of a long text.
std::string around(const std::string& text, size_t at) {
  constexpr size_t kBefore = 300;
  const size_t first = at < kBefore ? 0 : at - kBefore;
  return text.substr(std::min(first, text.size()), 2 * kBefore);
}

class PartsCorpus : public testing::TestWithParam<Subject> {
 protected:
  PartsCorpus()
      : lab_(GetParam().file.empty() ? Lab::forged(GetParam().spec)
                                     : Lab::shipped(GetParam().file)) {
    const bool small = GetParam().file.empty();
    run_.prompt = small ? 7 : 3;
    run_.tokens = random_tokens(seed_, small ? 11 : 5, lab_.model().config().vocabulary);
    RecordProperty("seed", std::to_string(seed_));
  }

  std::string told(const trace::Trace& a, const trace::Trace& b,
                   const std::vector<Findings>* parts) const {
    parity::CompareOptions options;
    options.threads = 1;
    options.parts = parts;
    options.rows = true;
    options.opened_bytes = kPageBytes / 2;
    auto compared = report::compare(a, b, &lab_.model(), nullptr, options, kDiagnosing);
    if (!compared.ok()) return compared.error().message;
    compared->comparison.seconds = 0;
    return report::page_json(compared->comparison, compared->subject, kPageBytes).dump(1);
  }

  // In this many parts, each written and read.
  std::vector<Findings> in_parts(const trace::Trace& a, const trace::Trace& b,
                                 int64_t count) const {
    std::vector<Findings> out;
    parity::CompareOptions options;
    options.threads = 1;
    for (int64_t k = 1; k <= count; ++k) {
      const auto part = parity::compare_part(a, b, &lab_.model(), options, {k, count});
      EXPECT_TRUE(part.ok()) << part.error().message;
      const std::string text = to_json(*part);
      auto read = parity::parse_findings(text, fmt::format("part{}", k));
      EXPECT_TRUE(read.ok()) << read.error().message;
      EXPECT_EQ(to_json(*read), text);
      out.push_back(std::move(*read));
    }
    return out;
  }

  void expect_same(const trace::Trace& a, const trace::Trace& b) {
    std::vector<Findings> parts = in_parts(a, b, choice_.below(4) == 0 ? choice_.below(40) + 1 : 8);
    if (choice_.below(2) == 0) std::ranges::reverse(parts);
    const std::string merged = told(a, b, &parts);
    const std::string whole = told(a, b, nullptr);
    const auto at = static_cast<size_t>(std::ranges::mismatch(merged, whole).in1 - merged.begin());
    EXPECT_TRUE(merged == whole) << "merged: ... " << around(merged, at) << "\nwhole:  ... "
                                 << around(whole, at);
  }

  trace::Trace altered_copy(const trace::Trace& trace, const std::function<bool(Tensor&)>& alter,
                            const std::function<void(trace::Manifest&)>& manifest = {}) {
    const std::string folder = scratch_.next();
    rewrite(trace, folder, DType::kF32, alter, manifest);
    auto out = trace::Trace::open(folder);
    if (!out.ok()) throw std::runtime_error(out.error().message);
    return std::move(*out);
  }

  const uint64_t seed_ = search_seed();
  Random choice_{seed_};
  Lab lab_;
  Job run_;
  Scratch scratch_;
};

TEST_P(PartsCorpus, TellWhatTheWholeTells) {
  const op::Program program = lab_.program(run_);
  const auto reference = lab_.record(run_, {.name = "f64", .doubles = true}, program);
  const Style plain{.name = "f32", .order = parity::Order::kLanes8};
  const auto honest = lab_.record(run_, plain, program);
  expect_same(reference, honest);
  const int64_t tried = runs_slow_tests() ? 12 : 2;
  for (int64_t i = 0; i < tried;) {
    const Bug& bug = bugs()[static_cast<size_t>(choice_.below(std::ssize(bugs())))];
    const int64_t layer = bug.outside ? -1 : choice_.below(program.layers);
    Patient patient(program);
    if (!bug.make(patient, layer, choice_.below(std::ssize(run_.tokens)))) continue;
    SCOPED_TRACE(fmt::format("{}, layer {}", bug.name, layer));
    run_.checkpoints = i % 3 == 0 ? "all" : i % 3 == 1 ? "ops" : kThin;
    const auto suspect = lab_.record(run_, plain, patient);
    if (i % 2 == 0)
      expect_same(honest, suspect);
    else
      expect_same(suspect, honest);
    ++i;
  }
}

TEST_P(PartsCorpus, OfEnginesThatDoNotSayTheirPrecision) {
  const op::Program program = lab_.program(run_);
  const auto reference = lab_.record(run_, {.name = "f64", .doubles = true}, program);
  const auto coarse = lab_.record(run_, {.name = "bf16", .activations = DType::kBF16}, program);
  expect_same(reference, altered_copy(
                             coarse, [](Tensor&) { return true; },
                             [](trace::Manifest& manifest) { manifest.engine.precision = {}; }));
}

TEST_P(PartsCorpus, WithGarbage) {
  const op::Program program = lab_.program(run_);
  const auto reference = lab_.record(run_, {.name = "f64", .doubles = true}, program);
  const auto honest = lab_.record(run_, {.name = "f32"}, program);
  constexpr double kGarbage[] = {std::numeric_limits<double>::quiet_NaN(),
                                 -std::numeric_limits<double>::infinity(), 1e30};
  expect_same(reference, altered_copy(honest, [&](Tensor& tensor) {
                const auto count = std::ssize(tensor.values);
                if (choice_.below(20) == 0)
                  tensor.values[static_cast<size_t>(choice_.below(count))] =
                      kGarbage[choice_.below(std::ssize(kGarbage))];
                return choice_.below(30) != 0;  // some are missing
              }));
}

INSTANTIATE_TEST_SUITE_P(Models, PartsCorpus, testing::ValuesIn(subjects()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace lockstep::engines
