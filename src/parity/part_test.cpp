#include "parity/part.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "parity/test_judging.h"

namespace lockstep::parity {
namespace {

class PartTest : public JudgingTest {
 protected:
  std::vector<Findings> in_parts(const trace::Trace& a, const trace::Trace& b, int64_t count,
                                 bool with_model = true) const {
    std::vector<Findings> out;
    for (int64_t k = 1; k <= count; ++k) {
      auto part = compare_part(a, b, with_model ? &traced.model() : nullptr, options, {k, count});
      if (!part.ok()) throw std::runtime_error(part.error().message);
      part->source = fmt::format("part{}", k);
      out.push_back(std::move(*part));
    }
    return out;
  }

  Result<Comparison> merged(const trace::Trace& a, const trace::Trace& b,
                            const std::vector<Findings>& parts) {
    options.parts = &parts;
    auto out = compare(a, b, &traced.model(), options);
    options.parts = nullptr;
    return out;
  }

  std::string refusal_of(const std::vector<Findings>& parts) {
    const auto out = merged(reference, suspect, parts);
    return out.ok() ? "not refused" : out.error().message;
  }

  Recording altered(const std::string& name, int64_t position, double by) {
    Recording out = original;
    out.at(name, position, 3) += by;
    return out;
  }

  trace::Trace reference = traced.write(original);
  trace::Trace suspect = traced.write(altered("blk.1.ffn_act", 4, 0.5));
};

TEST_F(PartTest, EveryCheckpointIsInOnePart) {
  const auto whole = compare(reference, suspect, &traced.model(), options);
  std::vector<std::string> expected;
  for (const CheckpointResult& result : whole->checkpoints) expected.push_back(result.name);
  EXPECT_EQ(expected.size(), original.order.size());
  for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{31}}) {
    std::vector<std::string> names;
    for (const Findings& part : in_parts(reference, suspect, count))
      for (const CheckpointResult& result : part.checkpoints) names.push_back(result.name);
    EXPECT_EQ(names, expected) << count;
  }
}

TEST_F(PartTest, PartsHaveAboutTheSameWork) {
  size_t most = 0;
  size_t least = original.order.size();
  for (const Findings& part : in_parts(reference, suspect, 4)) {
    most = std::max(most, part.checkpoints.size());
    least = std::min(least, part.checkpoints.size());
  }
  EXPECT_GE(least, 1);
  EXPECT_LE(most, original.order.size() / 2);
}

TEST_F(PartTest, MergedTheyTellTheFirstDefect) {
  for (const int64_t count : {int64_t{1}, int64_t{3}, int64_t{8}}) {
    const auto out = merged(reference, suspect, in_parts(reference, suspect, count));
    ASSERT_TRUE(out.ok()) << out.error().message;
    ASSERT_TRUE(out->first_defect);
    EXPECT_EQ(out->first_defect->checkpoint, "blk.1.ffn_act");
    EXPECT_EQ(out->first_defect->position, 4);
    EXPECT_EQ(out->first_defect->side, Side::kSuspect);
    ASSERT_TRUE(out->first_defect->shape);
    EXPECT_EQ(out->first_defect->shape->columns, std::vector<int64_t>{3});
    EXPECT_TRUE(find(*out, "blk.1.ffn_act").suspect.rows.empty()) << "nobody asked for rows";
  }
}

TEST_F(PartTest, WithoutAModelTheyAreMeasured) {
  const auto parts = in_parts(reference, suspect, 5, false);
  options.parts = &parts;
  const auto out = compare(reference, suspect, nullptr, options);
  ASSERT_TRUE(out.ok()) << out.error().message;
  const auto whole = compare(reference, suspect, nullptr, {});
  EXPECT_EQ(out->verdict, whole->verdict);
  EXPECT_EQ(out->coverage, whole->coverage);
  EXPECT_EQ(out->first_defect->own.error, whole->first_defect->own.error);
  EXPECT_EQ(out->unproved, whole->unproved);
}

TEST_F(PartTest, ABudgetIsRefused) {
  options.budget = 3;
  const auto out = compare_part(reference, suspect, &traced.model(), options, {1, 2});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().message,
            "a part judges the same rows on every machine, and what a budget affords depends on "
            "the machine; choose positions instead");
}

TEST_F(PartTest, OfAnotherComparisonTheyAreRefused) {
  const auto other = traced.write(altered("blk.1.ffn_act", 4, 0.25));
  const auto parts = in_parts(reference, suspect, 2);
  const auto fingerprint = [](const trace::Trace& trace) { return trace.fingerprint(); };
  auto mixed = parts;
  mixed[1] = in_parts(reference, other, 2)[1];
  mixed[1].source = "b";
  EXPECT_EQ(refusal_of(mixed), fmt::format("b: of another suspect trace: found {}, expected {}",
                                           fingerprint(other), fingerprint(suspect)));
  mixed[1] = in_parts(other, suspect, 2)[1];
  EXPECT_EQ(refusal_of(mixed),
            fmt::format("part2: of another reference trace: found {}, expected {}",
                        fingerprint(other), fingerprint(reference)));
  mixed = parts;
  mixed[0].identity.program = "lockstep 0.0.1";
  EXPECT_EQ(refusal_of(mixed),
            "part1: of another version of the program: found lockstep 0.0.1, expected "
            "lockstep " LOCKSTEP_VERSION);
  mixed = parts;
  mixed[0].identity.checkpoints = "layers";
  EXPECT_EQ(refusal_of(mixed),
            "part1: of another choice of checkpoints: found layers, expected all");
  mixed[0] = parts[0];
  mixed[0].identity.positions = {3};
  EXPECT_EQ(refusal_of(mixed), "part1: of another choice of positions");
  mixed[0] = in_parts(reference, suspect, 2, false)[0];
  EXPECT_EQ(refusal_of(mixed), fmt::format("part1: of another model: found none, expected {}",
                                           gguf::fingerprint(traced.model().file())));
  mixed[0] = parts[1];
  EXPECT_EQ(refusal_of(mixed), "part2: part 2 of 2, which part2 is too");
  EXPECT_EQ(refusal_of({parts[0]}), "part 2 of 2 is missing");
}

// Files may come from anywhere, and what follows reads rows where they say.
TEST_F(PartTest, WhatTheTracesDoNotHaveIsRefused) {
  const auto parts = in_parts(reference, suspect, 1);
  const auto at = [](Findings& part, const std::string& name) -> CheckpointResult& {
    return *std::ranges::find(part.checkpoints, name, &CheckpointResult::name);
  };
  const auto refused = [&](const std::function<void(Findings&)>& change) {
    auto changed = parts;
    change(changed[0]);
    return refusal_of(changed);
  };
  EXPECT_EQ(refused([](Findings& part) { part.checkpoints.pop_back(); }),
            "no part has the checkpoint logits");
  EXPECT_EQ(refused([](Findings& part) { part.checkpoints[0].name = "blk.9.q"; }),
            "part1: blk.9.q: the traces have no such checkpoint");
  EXPECT_EQ(
      refused([](Findings& part) { part.checkpoints.push_back(part.checkpoints[1]); }),
      fmt::format("part1: {}: another part has this checkpoint too", parts[0].checkpoints[1].name));
  EXPECT_EQ(refused([](Findings& part) { part.logits.at(0).position = 77; }),
            "part1: logits: has positions that the traces do not have");
  const std::string expected = "part1: blk.1.ffn_act: has rows that the traces do not have";
  const std::function<void(CheckpointResult&)> changes[] = {
      [](CheckpointResult& c) { c.rows.compared.back().position = 99; },
      [](CheckpointResult& c) { std::swap(c.rows.compared[0], c.rows.compared[1]); },
      [](CheckpointResult& c) { c.worst_position = 99; },
      [](CheckpointResult& c) {
        c.first_beyond = Beyond{99, {}};
      },
      [](CheckpointResult& c) { c.suspect.rows.back().position = 99; },
      [](CheckpointResult& c) { c.suspect.rows.clear(); },
      [](CheckpointResult& c) { c.suspect.defects = {99}; },
      [](CheckpointResult& c) {
        c.suspect.defects = {4, 4};
      },
      [](CheckpointResult& c) { c.suspect.defects.clear(); },
      [](CheckpointResult& c) { c.suspect.worst.reset(); },
      [](CheckpointResult& c) { c.suspect.worst->position = 99; },
      [](CheckpointResult& c) { c.suspect.worst->worst_index = 1 << 20; },
      [](CheckpointResult& c) { c.suspect.first_defect.reset(); },
      [](CheckpointResult& c) { c.suspect.first_defect->position = 5; },
      [](CheckpointResult& c) { c.reference.first_defect = c.suspect.first_defect; }};
  for (const auto& change : changes)
    EXPECT_EQ(refused([&](Findings& part) { change(at(part, "blk.1.ffn_act")); }), expected)
        << &change - changes;
}

TEST_F(PartTest, FilesKeepEveryBit) {
  auto part = in_parts(reference, suspect, 1)[0];
  constexpr double kLarge = std::numeric_limits<double>::infinity();
  OwnError& own = *part.checkpoints[0].reference.worst;
  own.error = kLarge;
  own.expected = -kLarge;
  own.recorded = std::nan("");
  own.replayed = -0.0;
  own.worst_ratio = std::numeric_limits<double>::denorm_min();
  own.non_finite = true;
  part.checkpoints[0].metrics.products = 1.0 / 3;
  part.checkpoints[0].rows.compared[0].relative_l2 = std::numeric_limits<float>::infinity();
  part.checkpoints[0].rows.compared[0].difference = std::nanf("");
  part.failure = "no \"memory\"\n";
  part.paths = {"a b", "c\xff", "", "other.gguf", "names.json"};
  const std::string text = to_json(part);
  const auto read = parse_findings(text, "file");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(to_json(*read), text);
  const OwnError& again = *read->checkpoints[0].reference.worst;
  EXPECT_EQ(again.error, kLarge);
  EXPECT_EQ(again.expected, -kLarge);
  EXPECT_TRUE(std::isnan(again.recorded));
  EXPECT_TRUE(std::signbit(again.replayed));
  EXPECT_EQ(again.worst_ratio, std::numeric_limits<double>::denorm_min());
  EXPECT_TRUE(again.non_finite);
  EXPECT_EQ(read->checkpoints[0].metrics.products, 1.0 / 3);
  EXPECT_EQ(read->checkpoints[0].rows.compared[0].relative_l2,
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(read->failure, part.failure);
  EXPECT_EQ(read->source, "file");
}

TEST_F(PartTest, BrokenFilesAreRefused) {
  const std::string text = to_json(in_parts(reference, suspect, 1)[0]);
  const auto broken = [&](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json document = nlohmann::json::parse(text);
    change(document);
    const auto out = parse_findings(document.dump(), "f");
    return out.ok() ? "not refused" : out.error().message;
  };
  using Json = nlohmann::json;
  EXPECT_EQ(broken([](Json& j) { j["format"] = "lockstep-check"; }),
            "f: format: found \"lockstep-check\", expected 'lockstep-part'");
  EXPECT_EQ(broken([](Json& j) { j["version"] = 2; }),
            "f: version: found 2, expected a whole number from 1 to 1");
  EXPECT_EQ(broken([](Json& j) { j["part"]["index"] = 2; }),
            "f: part.index: found 2, expected a whole number from 1 to 1");
  EXPECT_EQ(broken([](Json& j) { j["checkpoints"][2]["metrics"].erase(3); }),
            "f: checkpoints[2].metrics: found an array of 12, expected an array of 13");
  EXPECT_EQ(broken([](Json& j) { j["checkpoints"][0]["seconds"] = "soon"; }),
            "f: checkpoints[0].seconds: found \"soon\", expected a number, nan, inf or -inf");
  const auto rows = [&](const std::function<void(Json&)>& change) {
    return broken([&](Json& j) { change(j["checkpoints"][0]["rows"]); });
  };
  const std::string place = "f: checkpoints[0].rows";
  EXPECT_EQ(rows([](Json& j) {
              j["positions"] = {{0, 1'000'000'000'000}};
            }),
            place + ".positions: found an array of 1, expected 9 positions at most");
  EXPECT_EQ(rows([](Json& j) {
              j["positions"] = {{0, 2}, {2, 7}};
            }),
            place +
                ".positions[1][0]: found 2, expected a whole number from 3 to "
                "1000000000000");
  EXPECT_EQ(
      broken([](Json& j) {
        j["experts"]["suspect"] = {{"blk.0.ffn_choice", {{0, 1'000'000'000'001}}, Json::array()}};
      }),
      "f: experts.suspect[0][1][0][1]: found 1000000000001, expected a whole number from 0 to "
      "1000000000000");
  EXPECT_EQ(rows([](Json& j) {
              j["positions"] = {{0, 2}};
            }),
            place + ": found an object of 2, expected two numbers for each position");
  EXPECT_EQ(
      rows([](Json& j) { j["numbers"][1] = "0000000"; }),
      place + ".numbers[1]: found \"0000000\", expected hexadecimal digits, 8 for each number");
  EXPECT_EQ(rows([](Json& j) { j["numbers"][0] = "-0000001"; }),
            place +
                ".numbers[0]: found \"-0000001\", expected hexadecimal digits, 8 for each "
                "number");
  for (size_t length = 0; length < text.size(); length += 997)
    EXPECT_FALSE(parse_findings(std::string_view(text).substr(0, length), "f").ok()) << length;
}

TEST_F(PartTest, AFingerprintTellsTracesApart) {
  std::set<std::string> seen = {reference.fingerprint(), suspect.fingerprint()};
  EXPECT_EQ(seen.size(), 2);
  EXPECT_EQ(traced.write(original).fingerprint(), reference.fingerprint());
  for (const std::string& name : original.order) {
    if (original.values.at(name).shape.size() != 2) continue;
    EXPECT_TRUE(seen.insert(traced.write(altered(name, 8, 1e-9)).fingerprint()).second) << name;
  }
  Recording told = original;
  told.manifest.engine.version = "2";
  EXPECT_TRUE(seen.insert(traced.write(told).fingerprint()).second);
}

}  // namespace
}  // namespace lockstep::parity
