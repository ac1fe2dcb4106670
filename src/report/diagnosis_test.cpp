#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "report/json.h"
#include "report/report.h"

namespace lockstep::report {
namespace {

doctor::Diagnosis worked_diagnosis() {
  doctor::Diagnosis out;
  out.cause = "bias.twice";
  out.checkpoint = "blk.1.v";
  out.tried = 45;
  for (int i = 0; i < 45; ++i)
    out.attempts.push_back({"bias.twice", fmt::format("try {}", i), 0.5 + i, -1});
  doctor::Element element{3, "output row 7", 1.5, 0.5, 1.25};
  element.right = {"blk.1.v[7] = sum over i of w[7, i] · x[i] + b[7]",
                   {{"w[7, 2] · x[2]", 0.25, {0.5, 0.5}}, {"b[7]", 0.125}},
                   1,
                   0.125,
                   0.5};
  out.element = element;
  return out;
}

TEST(WorkedOut, Text) {
  Subject subject;
  subject.diagnoses = {worked_diagnosis()};
  const std::string text = diagnosis_report(subject, 100, Paint(false));
  EXPECT_NE(
      text.find("45 hypotheses; the op as it should be leaves an error of 0 at the rows tried "
                "first. The best 40 (--json has the others):"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("try 39"), std::string::npos);
  EXPECT_EQ(text.find("try 40"), std::string::npos);
  EXPECT_TRUE(
      text.ends_with("The number that is furthest off: position 3, output row 7, blk.1.v[7]\n"
                     "  recorded  1.5\n"
                     "  should be 0.5\n"
                     "      = sum over i of w[7, i] · x[i] + b[7]\n"
                     "        w[7, 2] · x[2]: 0.5 · 0.5 = 0.25\n"
                     "        b[7]: 0.125\n"
                     "        1 smaller term: 0.125\n"
                     "  under bias.twice 1.25\n"))
      << text;
  subject.diagnoses[0].element->found.reset();
  EXPECT_EQ(diagnosis_report(subject, 100, Paint(false)).find("under bias.twice"),
            std::string::npos);
}

TEST(WorkedOut, Json) {
  Subject subject;
  subject.diagnoses = {worked_diagnosis()};
  const auto made = nlohmann::json::parse(diagnosis_json({}, subject))["diagnoses"][0];
  EXPECT_EQ(made["attempts"].size(), 45U);
  const auto& element = made["element"];
  EXPECT_EQ(element["place"], "output row 7");
  EXPECT_EQ(element["found"], 1.25);
  EXPECT_TRUE(element["found_from"].is_null());
  EXPECT_EQ(element["expected_from"]["parts"][0]["factors"], (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(element["expected_from"]["parts"][1]["factors"].size(), 0U);
  EXPECT_EQ(element["expected_from"]["others"], 1);
  EXPECT_EQ(element["expected_from"]["others_sum"], 0.125);
  EXPECT_EQ(page_json({}, subject, 1 << 20)["page"]["elements"][0]["place"], "output row 7");
  subject.diagnoses[0].element->found.reset();
  EXPECT_TRUE(element_json(subject.diagnoses[0])["found"].is_null());
  subject.diagnoses[0].element.reset();
  EXPECT_TRUE(element_json(subject.diagnoses[0]).is_null());
}

}  // namespace
}  // namespace lockstep::report
