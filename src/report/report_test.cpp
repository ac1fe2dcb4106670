// Reports of hand-made comparisons: what they must say, and that no name breaks their form.
#include "report/report.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>
#include <zlib.h>

#include "base/random.h"
#include "base/text.h"
#include "parity/test_traces.h"
#include "report/packed.h"
#include "report/summary.h"

namespace lockstep::report {
namespace {

nlohmann::json page_data(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t first = page.find(open) + open.size();
  const std::string block = page.substr(first, page.find("</script>", first) - first);
  EXPECT_EQ(block.find('<'), std::string::npos);
  return nlohmann::json::parse(block);
}

std::vector<uint16_t> codes_of(const std::string& text) {
  std::vector<unsigned char> packed_bytes(text.size());
  const int length =
      EVP_DecodeBlock(packed_bytes.data(), reinterpret_cast<const unsigned char*>(text.data()),
                      static_cast<int>(text.size()));
  std::vector<uint16_t> out(1 << 22);
  uLongf size = 2 * out.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(out.data()), &size, packed_bytes.data(),
                       static_cast<uLong>(length)),
            Z_OK);
  out.resize(size / 2);
  return out;
}

using parity::CheckpointResult;
using parity::Comparison;
using parity::Side;
using parity::Verdict;

// Everything that a form may stumble over.
const std::string kNasty =
    "a|b`*_<&>\"'\x1b[31m\xff\xef\xbf\xbf,\n]]>\xe2\x80\xae"
    "é";

CheckpointResult checkpoint(const std::string& name, int64_t layer, Verdict verdict,
                            double relative) {
  CheckpointResult out;
  out.name = name;
  out.layer = layer;
  out.verdict = verdict;
  out.in_reference = out.in_suspect = verdict != Verdict::kMissing;
  if (!out.in_suspect) return out;
  out.positions = 3;
  for (int i = 0; i < 3; ++i) out.metrics.add(1, 1 + relative, i);
  out.worst_relative_l2 = relative;
  out.worst_position = 2;
  out.reference.judged = out.suspect.judged = 3;
  out.reference.worst = parity::OwnError{.position = 1, .error = 1e-8, .expected = 1e-8};
  out.suspect.worst = out.reference.worst;
  return out;
}

Comparison defective() {
  Comparison c;
  c.verdict = "defect";
  c.checkpoints = {checkpoint("embedding", -1, Verdict::kExact, 0),
                   checkpoint("blk.0.q", 0, Verdict::kMissing, 0),
                   checkpoint("blk.0.output", 0, Verdict::kRounding, 1e-7),
                   checkpoint("blk.1.ffn_act", 1, Verdict::kDefect, 0.5),
                   checkpoint("blk.1.output", 1, Verdict::kDrift, 0.1),
                   checkpoint("logits", -1, Verdict::kDrift, 0.2)};
  parity::OwnError own{.position = 3, .error = 0.5, .expected = 1e-6};
  own.recorded = 1.5;
  own.replayed = 1;
  own.worst_index = 17;
  own.worst_ratio = 5;
  c.checkpoints[3].suspect.worst = c.checkpoints[3].suspect.first_defect = own;
  c.first_defect = parity::Defect{"blk.1.ffn_act", 1, 3, Side::kSuspect, own};
  c.defects = 1;
  c.coverage = 0.99999;
  c.judged = 1;
  c.tokens.shared = 9;
  c.choices = {9, 8, 9, 9 * 0.25, 0.5};
  c.notes = {"a note"};
  return c;
}

Subject subject() {
  Subject out;
  out.reference = {"ref.trace", "lockstep 1 on cpu, f32"};
  out.suspect = {"mine.trace", "mine, f16"};
  out.model = "model.gguf";
  return out;
}

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
  EXPECT_EQ(causes(with)[0].substr(0, 30), "Cause, in the reference. At bl");
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

TEST(Summary, NumbersAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(-0.0), "0");
  EXPECT_EQ(short_number(0.5), "0.5");
  EXPECT_EQ(short_number(12345.6), "1.23e+04");
  EXPECT_EQ(short_number(3.14159e-7), "3.1e-07");
  EXPECT_EQ(short_number(-1e300), "-1.0e+300");
  EXPECT_EQ(short_number(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(percent(1), "100%");
  EXPECT_EQ(percent(0.99999), "99.99%") << "only all is all";
  EXPECT_EQ(percent(0.5), "50%");
  EXPECT_EQ(percent(0), "0%");
}

TEST(Summary, ErrorOverBoundIsTheRatio) {
  parity::OwnError row{.error = 8, .expected = 1, .worst_ratio = 16};
  EXPECT_EQ(bounded(row).measure, BoundedError::Measure::kRow);
  EXPECT_DOUBLE_EQ(bounded(row).error / bounded(row).bound, row.ratio());
  parity::OwnError element{.error = 1, .expected = 1, .worst_ratio = 160};
  element.recorded = 30;
  element.replayed = 10;
  EXPECT_EQ(bounded(element).measure, BoundedError::Measure::kElement);
  EXPECT_EQ(bounded(element).error, 20);
  EXPECT_DOUBLE_EQ(bounded(element).error / bounded(element).bound, element.ratio());
  parity::OwnError nan{.error = 1, .expected = 1, .non_finite = true};
  EXPECT_EQ(bounded(nan).measure, BoundedError::Measure::kNonFinite);
}

TEST(Summary, HeadlinesSayWhoIsWrongAndWhere) {
  Comparison c = defective();
  EXPECT_EQ(headline(c), "Not in parity: the suspect is wrong at blk.1.ffn_act, position 3");
  c.first_defect->side = Side::kReference;
  EXPECT_NE(headline(c).find("the reference is wrong"), std::string::npos);
  c.first_defect->side = Side::kBoth;
  EXPECT_NE(headline(c).find("both sides are wrong"), std::string::npos);
  c.first_defect->side = Side::kUndetermined;
  EXPECT_NE(headline(c).find("the sides differ from blk.1.ffn_act"), std::string::npos);
  Comparison good;
  good.parity = true;
  good.judged = 1;
  good.positions_compared = good.positions_judged = 9;
  for (const char* verdict : {"exact", "rounding", "drift"}) {
    good.verdict = verdict;
    EXPECT_TRUE(headline(good).starts_with("In parity: ")) << verdict;
    EXPECT_EQ(evidence(good, subject()), "");
  }
  good.verdict = "exact";
  good.coverage = 0.5;
  EXPECT_EQ(headline(good),
            "In parity: every number that both sides have is the same; coverage 50%");
  good.coverage = 1;
  EXPECT_EQ(headline(good), "In parity: every number is the same; coverage 100%");
  good.verdict = "drift";
  // Parity is said only of what was judged.
  good.positions_judged = 2;
  EXPECT_EQ(
      headline(good),
      "In parity at the 2 (of 9) positions judged: every op within rounding, differences only "
      "inherited; coverage 100%");
  good.unproved = "no model file was given (-m)";
  EXPECT_EQ(
      headline(good),
      "In parity: no difference is larger than the declared precision may explain; nothing was "
      "proved: no model file was given (-m); coverage 100%");
  Comparison other;
  other.prompts = parity::PromptDifference{"text", "the texts differ"};
  other.tokens.first_difference = 2;
  Subject with_tokens = subject();
  with_tokens.difference = TokenPair{2, 17, {}, " the\n", {}};
  EXPECT_EQ(headline(other), "Not in parity: the prompts differ from token 2 on: the texts differ");
  EXPECT_EQ(evidence(other, with_tokens),
            "Token 2: the reference 17 ' the\\n', the suspect has ended.");
  // A side that is wrong on its own tokens is told even so.
  other.first_defect = defective().first_defect;
  EXPECT_EQ(
      headline(other),
      "Not in parity: the prompts differ from token 2 on: the texts differ; and the suspect is "
      "wrong at blk.1.ffn_act, position 3");
}

TEST(Summary, HeadlinesSayWhatIsMissing) {
  Comparison c;
  c.verdict = "inconclusive";
  c.coverage = 0.0039;
  c.evidence.missing = "the suspect recorded no logits";
  EXPECT_EQ(headline(c),
            "Inconclusive: nothing that was compared is wrong, but the suspect recorded no logits; "
            "coverage 0.39%");
  c.evidence.missing.clear();
  c.coverage = 0.93;
  c.min_coverage = 0.95;
  EXPECT_EQ(
      headline(c),
      "Inconclusive: nothing that was compared is wrong, but coverage 93% is less than the 95% "
      "asked for");
}

TEST(Summary, HeadlinesOfChoicesAndForks) {
  Comparison c;
  c.verdict = "exact";
  c.parity = true;
  c.coverage = 1;
  c.fork.emplace();
  c.fork->sampled = true;
  c.reference.choices.sampling = {.known = true};
  c.suspect.choices.sampling = {.known = true, .temperature = 0.9, .top_k = 40};
  EXPECT_EQ(headline(c),
            "In parity up to the first choice; the two sampled differently (temperature 0 and "
            "temperature 0.9, top_k 40): every number is the same; coverage 100%");
  c.parity = false;
  c.verdict = "defect";
  c.first_defect = parity::Defect{parity::kChoice, -1, 4, Side::kReference, {}};
  c.first_defect->choice = parity::Choice{.position = 4,
                                          .token = 7,
                                          .logit = 1.5,
                                          .largest = 3,
                                          .largest_logit = 2.5,
                                          .possible = false};
  EXPECT_EQ(
      headline(c),
      "Not in parity: the reference chose a token at position 4 that temperature 0 cannot have "
      "chosen");
  EXPECT_EQ(evidence(c, subject()),
            "It took token 7 (logit 1.5); token 3 has the largest logit (2.5).");
}

TEST(Summary, ASparseTraceDoesNotNameAnOp) {
  Comparison c = defective();
  c.first_defect->after = "embedding";
  EXPECT_EQ(headline(c),
            "Not in parity: the suspect is wrong between embedding and blk.1.ffn_act, position 3");
  EXPECT_NE(evidence(c, subject()).find("record 'ops' to see which one"), std::string::npos);
  c.first_defect->after = "";
  EXPECT_NE(headline(c).find("between the tokens and blk.1.ffn_act"), std::string::npos);
}

TEST(Summary, TheShapeOfTheErrorIsTold) {
  Comparison c = defective();
  parity::ErrorShape shape;
  shape.elements = 512;
  shape.wrong_elements = 1;
  shape.columns = {17};
  shape.same_everywhere = true;
  shape.rows = 30;
  for (int64_t i = 0; i < 30; ++i) shape.positions.push_back(i);
  c.first_defect->shape = shape;
  c.first_defect->followers = 31;
  const auto told = [&] { return evidence(c, subject()); };
  EXPECT_TRUE(told().ends_with(
      "Wrong: 1 of 512 elements (column 17), the same at all 30 positions. 31 later checkpoints "
      "differ by what they inherit."))
      << told();
  c.first_defect->followers = 0;
  c.first_defect->shape->positions = {2, 3, 4, 9};
  c.first_defect->shape->columns = {0, 1, 2, 3, 8};
  c.first_defect->shape->wrong_elements = 5;
  c.first_defect->shape->same_everywhere = false;
  c.first_defect->shape->heads = 8;
  c.first_defect->shape->wrong_heads = {0, 2};
  EXPECT_TRUE(
      told().ends_with("Wrong: 5 of 512 elements (columns 0 to 3, 8), in heads 0, 2 of 8, at 4 "
                       "of 30 positions (2 to 4, 9)."))
      << told();
  c.first_defect->shape->wrong_elements = 512;
  c.first_defect->shape->wrong_heads = {0, 1, 2, 3, 4, 5, 6, 7};
  c.first_defect->shape->positions = {0};
  c.first_defect->shape->rows = 1;
  EXPECT_TRUE(told().ends_with("Wrong: all 512 elements.")) << told();
  const auto json = nlohmann::json::parse(json_report(c, subject()))["first_defect"]["shape"];
  EXPECT_EQ(json["wrong_elements"], 512);
  EXPECT_EQ(json["columns"], nlohmann::json::parse("[[0, 3], [8, 8]]"));
  EXPECT_EQ(json["positions"], nlohmann::json::parse("[[0, 0]]"));
}

TEST(Summary, SaysWhatAnEngineDeclares) {
  const parity::TracedModel model;
  auto recording = model.record({1, 2}, 2);
  recording.manifest.engine.precision = {"f32", "e4m3:row", "bf16", "int8:row"};
  EXPECT_EQ(describe(model.write(recording)).engine,
            "test 1 on cpu, f32, activations e4m3:row, kv bf16, weights int8:row");
  recording.manifest.engine.precision = {"f32", "f32", {}, {}};
  EXPECT_EQ(describe(model.write(recording)).engine, "test 1 on cpu, f32");
}

TEST(Summary, TheWorstComeFirst) {
  const Comparison c = defective();
  const auto list = worst(c, 3);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]->name, "blk.1.ffn_act");
  EXPECT_EQ(list[1]->name, "logits");
  EXPECT_EQ(list[2]->name, "blk.1.output");
  EXPECT_EQ(stations(c).size(), 4u);
  // In parity the verdict is about own errors: how near an op comes to its bound.
  Comparison good = c;
  good.parity = true;
  good.checkpoints[3].verdict = Verdict::kRounding;
  good.checkpoints[2].suspect.worst = parity::OwnError{.error = 3, .expected = 1};
  good.checkpoints[3].suspect.worst = parity::OwnError{.error = 1, .expected = 1};
  EXPECT_EQ(worst(good, 1)[0]->name, "blk.0.output");
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

TEST(Html, IsOnePageWithoutAnythingFromElsewhere) {
  const std::string page = html_report(defective(), subject());
  for (const char* part : {"https:", "src=", "href=", "@import", "url(", "\nimport ", "\nexport "})
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  // The name of SVG, which nobody asks for.
  EXPECT_EQ(page.find("http:"), page.rfind("http:"));
  for (const char* part : {"id=\"story\"", "id=\"map\"", "id=\"tokens\"", "id=\"cell\"",
                           "id=\"drift\"", "prefers-color-scheme", "@media print"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  // Nothing was compared: still a page.
  EXPECT_NE(html_report(Comparison(), subject()).find("</html>"), std::string::npos);
  EXPECT_EQ(page_data(html_report(Comparison(), subject()))["page"]["positions"],
            nlohmann::json::array());
}

// Two checkpoints: one with a row that is wrong, one that a side lacks at position 5.
Comparison with_rows() {
  Comparison c = defective();
  c.checkpoints.resize(2);
  CheckpointResult& first = c.checkpoints[0];
  first.rows.compared = {{0, 0.0F, 0.0F}, {1, 0.5F, 2.0F}, {4, INFINITY, 0.0F}};
  first.reference.rows = {{0, 0.0F, 0.0F}, {1, 0.25F, 0.0F}};
  first.suspect.rows = {{0, 0.0F, 0.0F}, {1, 1024.0F, 1.0F}, {9, INFINITY, 0.0F}};
  first.rows.allowed = 0.25;
  c.checkpoints[1].rows.only_suspect = {5};
  c.reference_tokens = {{7, 8, 9}, 2, {"a</script><b>", "<!--", "\xff"}};
  c.suspect_tokens = {{7, 8, 3}, 2, {}};
  c.logits = {{1, {9, 3, 0.5, 0.25, 0.125, 1}}};
  return c;
}

TEST(Html, HoldsEveryRow) {
  const nlohmann::json data = page_data(html_report(with_rows(), subject()));
  EXPECT_EQ(data["headline"],
            nlohmann::json::parse(json_report(with_rows(), subject()))["headline"]);
  const nlohmann::json& page = data["page"];
  EXPECT_EQ(page["positions"], nlohmann::json({{0, 1}, {4, 5}, {9, 9}}));
  EXPECT_EQ(page["group"], 1);
  constexpr uint16_t kOne = 16384;
  // Positions 0, 1, 4, 5, 9 of both checkpoints.
  EXPECT_EQ(codes_of(page["rows"]["own_reference"]),
            (std::vector<uint16_t>{2, kOne - 32, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(codes_of(page["rows"]["own_suspect"]),
            (std::vector<uint16_t>{2, kOne + 160, 1, 0, 65535, 0, 0, 0, 1, 0}));
  EXPECT_EQ(codes_of(page["rows"]["relative_l2"]),
            (std::vector<uint16_t>{2, kOne - 16, 65535, 0, 1, 0, 0, 0, 0, 0}));
  // Of a difference of 2 an own error of 1 leaves sqrt(3).
  EXPECT_EQ(codes_of(page["rows"]["inherited"]),
            (std::vector<uint16_t>{2, kOne - 19, 1, 0, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(page["tokens"]["reference"]["texts"][0], "a</script><b>");
  EXPECT_TRUE(page["tokens"]["suspect"]["texts"].is_null());
  EXPECT_EQ(page["logits"], nlohmann::json::parse("[[1, 9, 3, 0.5, 0.25, 0.125]]"));
  EXPECT_EQ(page["explained"], nlohmann::json({0.25, 0.25}));
  EXPECT_NE(page["formulas"]["q"]["formula"].get<std::string>().find("attn_q.weight"),
            std::string::npos);
}

TEST(Html, ItsDataAreBoundedAndItSaysWhatIsLeftOut) {
  Comparison c = with_rows();
  parity::OpenedRow row;
  row.checkpoint = "embedding";
  row.side = Side::kSuspect;
  row.ratio = 5;
  row.index.resize(1000);
  row.recorded.resize(1000);
  row.errors.resize(1000);
  c.opened.assign(300, row);
  c.not_opened = 17;
  Random random(7);
  for (int64_t position = 10; position < 100'000; ++position)
    c.checkpoints[0].rows.compared.push_back(
        {position, static_cast<float>(std::exp2(120 * random.uniform() - 60)), 1.0F});
  const nlohmann::json large = page_data(html_report(c, subject()))["page"];
  EXPECT_EQ(large["group"], 1);
  EXPECT_EQ(large["opened"].size(), 300u);
  EXPECT_EQ(large["left_out"],
            nlohmann::json({"The numbers of 300 rows are shown, the worst ones; 17 more that are "
                            "wrong are left out."}));
  constexpr int64_t kLimit = 200'000;
  const nlohmann::json whole = page_data(html_report(c, subject(), kLimit));
  const nlohmann::json& small = whole["page"];
  EXPECT_LT(std::ssize(whole.dump()), kLimit);
  EXPECT_LT(small["opened"].size(), 20u);
  EXPECT_GT(small["opened"].size(), 0u);
  const auto group = small["group"].get<size_t>();
  ASSERT_GT(group, 1u);
  ASSERT_EQ(small["left_out"].size(), 2u);
  EXPECT_EQ(
      small["left_out"][0],
      fmt::format("The map has a column for every {} positions, which shows the worst of them.",
                  group));
  const auto one = codes_of(large["rows"]["relative_l2"]);
  const auto merged = codes_of(small["rows"]["relative_l2"]);
  const size_t columns = 100'000 - 10 + 5;
  ASSERT_EQ(one.size(), 2 * columns);
  ASSERT_EQ(merged.size(), 2 * ((columns + group - 1) / group));
  for (size_t i = 0; i < merged.size() / 2; ++i) {
    const auto first = one.begin() + static_cast<int64_t>(i * group);
    const auto last = one.begin() + static_cast<int64_t>(std::min((i + 1) * group, columns));
    EXPECT_EQ(merged[i], *std::max_element(first, last));
  }
}

TEST(Packed, SizesKeepTheirOrder) {
  EXPECT_EQ(size_code(0), kZeroCode);
  EXPECT_EQ(size_code(NAN), kInfiniteCode);
  EXPECT_EQ(size_code(INFINITY), kInfiniteCode);
  EXPECT_EQ(size_code(5e-324), kZeroCode + 1);
  EXPECT_LT(size_code(1e308), kInfiniteCode);
  for (double value = 1e-30; value < 1e30; value *= 1.37) {
    const double back = std::exp2((size_code(value) - 16384) / 16.0);
    EXPECT_NEAR(back / value, 1, 0.022);
    EXPECT_LE(size_code(value), size_code(value * 1.01));
  }
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
