// Reports for terminals and programs: what they must hold, and that no name breaks their form.
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "report/summary.h"
#include "report/test_comparisons.h"

namespace lockstep::report {
namespace {

doctor::Diagnosis diagnosis() {
  doctor::Diagnosis out;
  out.cause = "rope.base";
  out.text = "At blk.1.q_rope: the base is 20000, not 10000 " + kNasty;
  out.parameters = {{"value", 20000.0}, {"tensor", kNasty}, {"layer", int64_t{3}}};
  out.checkpoint = "blk.1.q_rope";
  out.layers = {0, 1, 2, 5};
  out.positions = {1, 2};
  out.proved = true;
  out.rows = out.explained = 8;
  out.ratio_before = INFINITY;
  out.ratio_after = 0.25;
  out.fix = "Look at the base.";
  out.alternatives = {"rope.scaling", "rope.dims"};
  out.attempts = {{"rope.base", kNasty, 1e-7, 0.25}, {"rope.dims", "fewer", 0.5, -1}};
  out.tried = 2;
  out.error_before = 0.75;
  return out;
}

TEST(Diagnoses, AreSaidInEveryForm) {
  Subject with = subject();
  with.diagnoses = {diagnosis()};
  const Comparison c = defective();
  const std::string line =
      "Cause: rope.base (proved). At blk.1.q_rope: the base is 20000, not 10000";
  const std::string text = terminal_report(c, with, 400, Paint(false));
  EXPECT_NE(text.find("\n" + line), std::string::npos) << text;
  EXPECT_NE(text.find("Layers 0 to 2, 5. Explains it as well: rope.scaling, rope.dims. Look at"),
            std::string::npos);
  EXPECT_NE(markdown_report(c, with).find(line), std::string::npos);
  EXPECT_NE(junit_report(c, with).find(line), std::string::npos);
  EXPECT_NE(html_report(c, with).find(line), std::string::npos);
  with.diagnoses[0].proved = false;
  with.diagnoses[0].side = Side::kReference;
  EXPECT_EQ(causes(with)[0].substr(0, 49), "Cause, in the reference: rope.base (consistent). ");
  with.diagnoses[0].cause = doctor::kUnknown;
  EXPECT_EQ(causes(with)[0].substr(0, 40), "Cause not known, in the reference. At bl");
}

TEST(Diagnoses, Json) {
  Subject with = subject();
  EXPECT_EQ(nlohmann::json::parse(json_report(defective(), with))["diagnoses"].size(), 0U);
  with.diagnoses = {diagnosis()};
  const auto short_form = nlohmann::json::parse(json_report(defective(), with))["diagnoses"][0];
  EXPECT_EQ(short_form.size(), 11U);
  EXPECT_EQ(short_form["cause"], "rope.base");
  EXPECT_EQ(short_form["parameters"]["value"], 20000.0);
  EXPECT_EQ(short_form["parameters"]["layer"], 3);
  EXPECT_EQ(short_form["layers"], (std::vector<int>{0, 1, 2, 5}));
  EXPECT_EQ(short_form["positions"], (std::vector<int>{1, 2}));
  EXPECT_EQ(short_form["proof"], "proved");
  EXPECT_EQ(short_form["evidence"]["explained"], 8);
  EXPECT_TRUE(short_form["evidence"]["ratio_before"].is_null());
  EXPECT_EQ(short_form["alternatives"].size(), 2U);
  const auto whole = nlohmann::json::parse(diagnosis_json(defective(), with))["diagnoses"][0];
  EXPECT_EQ(whole["attempts"].size(), 2U);
  EXPECT_EQ(whole["attempts"][0]["ratio"], 0.25);
  EXPECT_TRUE(whole["attempts"][1]["ratio"].is_null());
  EXPECT_EQ(whole["error_before"], 0.75);
  EXPECT_TRUE(whole["element"].is_null());
  const std::string table = diagnosis_report(with, 100, Paint(false));
  EXPECT_NE(table.find("Experiments at blk.1.q_rope\n2 hypotheses"), std::string::npos) << table;
  EXPECT_NE(table.find("rope.dims"), std::string::npos);
}

TEST(Terminal, HeadlineComesFirstAndNoLineIsWiderThanTheTerminal) {
  const Comparison c = defective();
  for (const int64_t width : {40, 44, 60, 80, 200}) {
    SCOPED_TRACE(width);
    const std::string text = terminal_report(c, subject(), width, Paint(false));
    EXPECT_TRUE(text.starts_with("Not in parity:"));
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    for (const char* part :
         {"Own error", "coverage", "99.99%", "layer 1", "logits", "blk.1.ffn_act", "a note"})
      EXPECT_NE(text.find(part), std::string::npos) << part;
    size_t begin = 0;
    while (begin < text.size()) {
      const size_t end = text.find('\n', begin);
      EXPECT_LE(utf8_length(text.substr(begin, end - begin)), width)
          << text.substr(begin, end - begin);
      begin = end + 1;
    }
  }
  const std::string painted = terminal_report(c, subject(), 80, Paint(true));
  EXPECT_TRUE(painted.starts_with("\x1b["));
}

TEST(Json, HasTheFieldsThatProgramsRelyOn) {
  const auto json = nlohmann::json::parse(json_report(defective(), subject()));
  EXPECT_EQ(json["parity"], false);
  EXPECT_EQ(json["verdict"], "defect");
  const auto& defect = json["first_defect"];
  EXPECT_EQ(defect["checkpoint"], "blk.1.ffn_act");
  EXPECT_EQ(defect["layer"], 1);
  EXPECT_EQ(defect["position"], 3);
  EXPECT_EQ(defect["side"], "suspect");
  EXPECT_EQ(defect["own_error"], 0.5);
  EXPECT_DOUBLE_EQ(defect["bound"].get<double>(), 4e-6);
  EXPECT_EQ(json["coverage"], 0.99999);
  EXPECT_EQ(json["tokens"]["agree"], true);
  EXPECT_TRUE(json["tokens"]["first_difference"].is_null());
  ASSERT_EQ(json["checkpoints"].size(), 6u);
  EXPECT_EQ(json["checkpoints"][3]["verdict"], "defect");
  EXPECT_TRUE(json["checkpoints"][0]["layer"].is_null());
  EXPECT_TRUE(json["fork"].is_null());
  EXPECT_TRUE(
      nlohmann::json::parse(json_report(Comparison(), subject()))["first_defect"].is_null());
}

TEST(Json, NumbersThatJsonDoesNotHaveAreNull) {
  Comparison c = defective();
  c.first_defect->own.non_finite = true;
  c.first_defect->own.recorded = NAN;
  c.checkpoints[1] = checkpoint("x", -1, Verdict::kDiffers, 0);
  c.checkpoints[1].metrics = {};
  c.checkpoints[1].metrics.add(0, 1, 0);  // relative to nothing
  const auto json = nlohmann::json::parse(json_report(c, subject()));
  EXPECT_TRUE(json["first_defect"]["own_error"].is_null());
  EXPECT_TRUE(json["first_defect"]["recorded"].is_null());
  EXPECT_EQ(json["first_defect"]["measure"], "non_finite");
  EXPECT_TRUE(json["checkpoints"][1]["relative_l2"].is_null());
}

// Tags open and close in order, and nothing else has a '<'. Good for our own XML and SVG.
bool balanced(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos || xml.find('<', at + 1) < end) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.starts_with('?') || tag.ends_with('/')) continue;
    const std::string name = tag.substr(0, tag.find(' '));
    if (!name.starts_with('/')) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name.substr(1)) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(Junit, ACaseACheckpoint) {
  const std::string xml = junit_report(defective(), subject());
  EXPECT_TRUE(balanced(xml)) << xml;
  EXPECT_NE(xml.find("tests=\"7\" failures=\"2\" errors=\"0\" skipped=\"1\""), std::string::npos);
  EXPECT_NE(xml.find("<testcase classname=\"lockstep.blk.1\" name=\"blk.1.ffn_act\""),
            std::string::npos);
  Comparison timed = defective();
  timed.seconds = 3;
  timed.checkpoints[0].seconds = 1.25;
  const std::string times = junit_report(timed, subject());
  EXPECT_NE(times.find("name=\"embedding\" time=\"1.250000\""), std::string::npos) << times;
  EXPECT_NE(times.find("name=\"parity\" time=\"1.750000\""), std::string::npos);
  EXPECT_NE(times.find("skipped=\"1\" time=\"3.000000\""), std::string::npos);
  EXPECT_NE(xml.find("wrong from position 3: own error 0.5, bound 4.0e-06"), std::string::npos);
}

TEST(Reports, AnyNameLeavesTheFormIntact) {
  Comparison c = defective();
  for (CheckpointResult& result : c.checkpoints) result.name += kNasty;
  c.first_defect->checkpoint = c.checkpoints[3].name;
  c.notes = {kNasty};
  Subject s;
  s.reference = {kNasty, kNasty};
  s.suspect = {kNasty, kNasty};
  s.model = kNasty;
  s.difference = TokenPair{0, 1, 2, kNasty, kNasty};
  const std::string xml = junit_report(c, s);
  EXPECT_TRUE(balanced(xml)) << xml;
  const std::string page = html_report(c, s);
  const std::string markdown = markdown_report(c, s);
  const std::string text = terminal_report(c, s, 80, Paint(false));
  const std::string json = json_report(c, s);
  for (const std::string& out : {xml, page, markdown, text, json}) {
    EXPECT_EQ(find_invalid_utf8(out), std::string::npos);
    EXPECT_EQ(out.find('\x1b'), std::string::npos);
  }
  for (const std::string& out : {xml, page, markdown, text})
    EXPECT_EQ(out.find("\xe2\x80\xae"), std::string::npos) << "a mark that reorders text";
  EXPECT_EQ(xml.find("\xef\xbf\xbf"), std::string::npos);
  EXPECT_EQ(page.find("b`*_<&"), std::string::npos);
  // A table's row has as many bars as its head, and no name opens code or a tag.
  for (size_t at = markdown.find("\n| "); at != std::string::npos;
       at = markdown.find("\n| ", at + 1)) {
    const std::string line = markdown.substr(at + 1, markdown.find('\n', at + 1) - at - 1);
    const auto bars = std::ranges::count(line, '|');
    EXPECT_TRUE(bars == 3 || bars == 5 || bars == 7) << line;
    EXPECT_EQ(line.find('<'), std::string::npos);
    EXPECT_EQ(line.find('`'), std::string::npos);
  }
  EXPECT_TRUE(nlohmann::json::accept(json));
  EXPECT_EQ(std::ranges::count(csv_report(c), '"') % 2, 0);
}

TEST(Markdown, IsReadableAsText) {
  const std::string text = markdown_report(defective(), subject());
  EXPECT_NE(text.find("the suspect is wrong at blk.1.ffn_act, position 3"), std::string::npos)
      << text;
  EXPECT_NE(text.find("(1.2e+05 times)"), std::string::npos) << text;
  EXPECT_EQ(text.find("&#"), std::string::npos) << text;
}

TEST(Csv, ALineACheckpointWithAllItsCells) {
  const std::string text = csv_report(defective());
  EXPECT_EQ(std::ranges::count(text, '\n'), 7);
  const std::string head = text.substr(0, text.find('\n'));
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_EQ(std::ranges::count(text.substr(at, end - at), ','), std::ranges::count(head, ','));
    at = end + 1;
  }
}

}  // namespace
}  // namespace lockstep::report
