// Results of suites: as JSON and back, what is known, parts, baselines, and their forms for people.
#include "suite/results.h"

#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "suite/writers.h"

namespace lockstep::suite {
namespace {

std::string any_text(Random& random) {
  static const char* const kTexts[] = {"",           "a",        "<b>&\"'|", "::error::%0A",
                                       "\n\x1b[31m", "\xff\xfe", "ü\u202e",  "]]>",
                                       "`x` *y* _z_"};
  return kTexts[random.next() % std::size(kTexts)];
}

CaseResult any_result(Random& random, int64_t index) {
  CaseResult r;
  r.id = fmt::format("case/{}/x", index);
  r.key = "k";
  r.index = index;
  r.case_name = "case";
  r.model = "m" + any_text(random);
  r.prompt = any_text(random);
  r.reference = "reference";
  r.suspect = "x";
  r.status = static_cast<Status>(random.next() % 4);
  r.parity = r.status == Status::kPassed;
  r.verdict = "v";
  r.reason = any_text(random);
  r.output = any_text(random);
  r.known = any_text(random);
  if (random.next() % 2 == 0) r.worst_ratio = static_cast<double>(random.next() % 1000) / 7;
  if (random.next() % 2 == 0) r.kl_mean = 1e-9;
  if (random.next() % 2 == 0)
    r.first_defect = {{"z", "blk.0.q"}, {"a", {{"y", 1}, {"b", nullptr}}}};
  for (uint64_t i = random.next() % 3; i > 0; --i) r.defects.push_back(fmt::format("blk.{}.q", i));
  r.seconds = 0.25;
  return r;
}

Results any_results(uint64_t seed, int64_t count) {
  Random random(seed);
  Results all;
  all.name = "s" + any_text(random);
  all.time = "2026-01-02T03:04:05Z";
  all.suite = "key";
  all.jobs = count;
  for (int64_t i = 0; i < count; ++i) all.results.push_back(any_result(random, i));
  return all;
}

TEST(Results, JsonThereAndBack) {
  for (const int64_t count : {0, 1, 7, 255}) {
    const Results all = any_results(static_cast<uint64_t>(count), count);
    const std::string text = to_json(all);
    const auto read = parse_results(text, "x");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(to_json(*read), text);
  }
}

TEST(Results, FormsKeepTheirMarkupWhateverTextsHold) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Results all = any_results(seed, 57);
    const std::string junit = junit_text(all), page = html_text(all, "r");
    for (const std::string& text : {junit, page, markdown_text(all)}) {
      EXPECT_EQ(text.find("<b>"), std::string::npos);
      EXPECT_EQ(text.find('\x1b'), std::string::npos);
      EXPECT_EQ(text.find('\xff'), std::string::npos);
    }
    int64_t lines = 0;
    const std::string told = annotations(all);
    for (size_t at = 0; at < told.size(); at = told.find('\n', at) + 1, ++lines)
      EXPECT_TRUE(told.substr(at).starts_with("::error title=case/") ||
                  told.substr(at).starts_with("::notice title=case/"));
    EXPECT_EQ(lines, 57 - all.count(Status::kPassed));
  }
}

CaseResult failed(const std::vector<std::string>& defects) {
  CaseResult r;
  r.id = "c/0/x";
  r.suspect = "x";
  r.case_name = "c";
  r.model = "m.gguf";
  r.status = Status::kFailed;
  r.defects = defects;
  return r;
}

Status status_with(const std::vector<Known>& known, const CaseResult& result) {
  Results all;
  all.results = {result};
  apply_known(known, all);
  return all.results[0].status;
}

TEST(Known, EveryDefectNeedsAnEntry) {
  const Known act = {"x", "blk.*.ffn_act", "", "", "a table", 3};
  const Known logits = {"*", "logits", "*.gguf", "?", "why", 4};
  EXPECT_EQ(status_with({act}, failed({"blk.0.ffn_act", "blk.12.ffn_act"})), Status::kKnown);
  EXPECT_EQ(status_with({act}, failed({"blk.0.ffn_act", "logits"})), Status::kFailed);
  EXPECT_EQ(status_with({act, logits}, failed({"blk.0.ffn_act", "logits"})), Status::kKnown);
  EXPECT_EQ(status_with({act}, failed({})), Status::kFailed);  // a fork, or too little coverage
  EXPECT_EQ(status_with({{"x", "", "", "", "all", 1}}, failed({})), Status::kKnown);
  EXPECT_EQ(status_with({{"y", "", "", "", "all", 1}}, failed({"logits"})), Status::kFailed);
  EXPECT_EQ(status_with({{"x", "", "n*", "", "all", 1}}, failed({"logits"})), Status::kFailed);
  EXPECT_EQ(status_with({{"x", "", "", "d", "all", 1}}, failed({"logits"})), Status::kFailed);
  CaseResult other = failed({"logits"});
  other.reference_wrong = true;
  EXPECT_EQ(status_with({logits}, other), Status::kFailed);
  other = failed({});
  other.status = Status::kError;
  EXPECT_EQ(status_with({{"x", "", "", "", "all", 1}}, other), Status::kError);
}

TEST(Known, StaleOnlyOnceAllHasRun) {
  Results all;
  all.results = {failed({"logits"})};
  apply_known({{"x", "logits", "", "", "a", 1}, {"x", "embedding", "", "", "b", 2}}, all);
  ASSERT_EQ(all.stale().size(), 1u);
  EXPECT_EQ(all.stale()[0]->entry.reason, "b");
  all.complete = false;
  EXPECT_TRUE(all.stale().empty());
  all.complete = true;
  all.part = Part{1, 2};
  EXPECT_TRUE(all.stale().empty());
}

TEST(Baseline, WorseByMoreThanItsNoise) {
  CaseResult before;
  before.id = "c/0/x";
  before.status = Status::kPassed;
  before.parity = true;
  before.worst_ratio = 0.4;
  before.kl_mean = 1e-4;
  before.kl_worst = 3e-4;
  before.kl_positions = 100;
  const auto status_of = [&](double ratio, double kl) {
    Results old, now;
    old.results = {before};
    now.results = {before};
    now.results[0].worst_ratio = ratio;
    now.results[0].kl_mean = kl;
    hold_against(old, now);
    return now.results[0].status;
  };
  EXPECT_EQ(status_of(0.4, 1e-4), Status::kPassed);
  EXPECT_EQ(status_of(0.1, 1e-6), Status::kPassed);
  EXPECT_EQ(status_of(0.49, 1e-4), Status::kPassed);
  EXPECT_EQ(status_of(0.51, 1e-4), Status::kFailed);
  // Three standard errors: 3 * sqrt(1e-4 * 2e-4 / 100) = 4.2e-5.
  EXPECT_EQ(status_of(0.4, 1.42e-4), Status::kPassed);
  EXPECT_EQ(status_of(0.4, 1.43e-4), Status::kFailed);
}

}  // namespace
}  // namespace lockstep::suite
