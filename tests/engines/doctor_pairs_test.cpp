// Several bugs at once: each is named in the same run, and nothing else is.
#include <algorithm>
#include <cstdlib>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "base/test_effort.h"
#include "clinic.h"
#include "parity/replay.h"
#include "subjects.h"

namespace lockstep::engines {
namespace {

using doctor::Diagnosis;
using parity::Order;

struct PlacedBug {
  const Bug* bug = nullptr;
  int64_t layer = 0;
  int64_t position = 0;
  std::optional<op::ValueId> make(Patient& patient) const {
    return bug->make(patient, bug->outside ? -1 : layer, position);
  }
};

// How near to each other the bugs are.
enum class Near { kAnywhere, kSameLayer, kSameOp };

class DoctorPairs : public testing::TestWithParam<Subject> {
 protected:
  DoctorPairs() : lab_(Lab::forged(GetParam().spec)) {
    run_.prompt = 8;
    run_.tokens = random_tokens(seed_, 12, lab_.model().config().vocabulary);
    program_ = lab_.program(run_);
    RecordProperty("seed", std::to_string(seed_));
  }

  PlacedBug choose() {
    return {&bugs()[static_cast<size_t>(choice_.below(std::ssize(bugs())))],
            choice_.below(program_.layers),
            choice_.below(2) == 0 ? run_.prompt - 2 : run_.prompt + 1};
  }

  // The op that a bug is in; nothing where this architecture cannot have it.
  std::optional<size_t> op_of(const PlacedBug& planted) const {
    Patient patient(program_);
    const auto wrong = planted.make(patient);
    if (!wrong) return std::nullopt;
    for (size_t i = 0; i < program_.ops.size(); ++i)
      if (std::ranges::count(program_.ops[i].outputs, *wrong) > 0) return i;
    return std::nullopt;
  }

  std::vector<PlacedBug> choose(int count, Near near) {
    for (int tries = 0; tries < 10'000; ++tries) {
      std::vector<PlacedBug> out;
      for (int i = 0; i < count; ++i) {
        out.push_back(choose());
        if (near != Near::kAnywhere) out.back().layer = out.front().layer;
      }
      std::vector<size_t> ops;
      for (const PlacedBug& each : out)
        if (const auto op = op_of(each)) ops.push_back(*op);
      if (std::ssize(ops) < count) continue;
      if (near == Near::kSameOp && std::ranges::count(ops, ops.front()) < count) continue;
      const bool twice = std::ranges::any_of(out, [&](const PlacedBug& each) {
        return std::ranges::count(out, each.bug, &PlacedBug::bug) > 1;
      });
      if (twice && near != Near::kAnywhere) continue;
      if (near == Near::kSameLayer &&
          std::ranges::any_of(out, [](const PlacedBug& each) { return each.bug->outside; }))
        continue;
      // One may take the other's op away.
      Patient together(program_);
      if (std::ranges::all_of(out, [&](const PlacedBug& each) {
            Patient alone(program_);
            const auto wrong = each.make(together);
            return wrong && wrong == each.make(alone);
          }))
        return out;
    }
    return {};
  }

  using Rows = std::set<std::pair<op::ValueId, int64_t>>;

  // What is wrong in a trace, where the bugs in `known` are taken for right.
  Rows wrong_rows(const Patient& known, const trace::Trace& trace, const Style& style) const {
    parity::Replay replay(known.altered.forward(), precision_of(style), trace, run_.tokens,
                          run_.checkpoints, 1);
    std::vector<int64_t> positions;
    for (int64_t p = 0; p < std::ssize(run_.tokens); ++p) positions.push_back(p);
    Rows out;
    for (op::ValueId id = 0; id < std::ssize(program_.values); ++id) {
      if (!trace.has(program_.value(id).name)) continue;
      const auto judged = replay.judge(id, positions);
      for (const auto& own : judged.value_or(std::vector<parity::OwnError>{}))
        if (own.defect()) out.insert({id, own.position});
    }
    return out;
  }

  // Whether the trace shows a bug, where all the others are known. Another one may undo or hide it.
  bool shows(const std::vector<PlacedBug>& planted, size_t index, const trace::Trace& trace,
             const Style& style) const {
    Patient others(program_);
    Patient all(program_);
    for (size_t i = 0; i < planted.size(); ++i) {
      planted[i].make(all);
      if (i != index) planted[i].make(others);
    }
    const Rows left = wrong_rows(all, trace, style);  // by quirks, which no program can say
    const Rows wrong = wrong_rows(others, trace, style);
    if (all.quirks.size() == others.quirks.size()) return wrong.size() > left.size();
    // Of a quirk: rows that no other quirk is at.
    return std::ranges::any_of(left, [&](const auto& row) {
      return std::ranges::none_of(others.quirks, [&](const Quirk& quirk) {
        return program_.value(row.first).name == program_.value(quirk.value).name;
      });
    });
  }

  uint64_t seed_ = search_seed();
  Random choice_{seed_ + std::hash<std::string>()(GetParam().name)};
  Lab lab_;
  Job run_;
  op::Program program_;
};

struct PairScore {
  int planted = 0;
  int named = 0;
  int wrong = 0;
  int unknown = 0;
};

bool is_named(const Bug& bug, const Diagnosis& diagnosis) {
  const auto fits = [&](const std::string& cause) {
    return cause == bug.cause || (bug.cause == "weight.layout" && cause == "weight.transposed");
  };
  return fits(diagnosis.cause) || std::ranges::any_of(diagnosis.alternatives, fits);
}

TEST_P(DoctorPairs, EachIsNamed) {
  const bool table = std::getenv("LOCKSTEP_TABLE") != nullptr;
  std::vector<std::string> sets = {"ops", "all"};
  if (runs_slow_tests()) sets = {"ops", "all", "layers"};  // LOCKSTEP_SETS=logits: many minutes
  if (const char* chosen = std::getenv("LOCKSTEP_SETS")) sets = {chosen};
  for (const std::string& set : sets)
    for (const Near near : {Near::kAnywhere, Near::kSameLayer, Near::kSameOp}) {
      PairScore score;
      const bool stretch = set == "layers" || set == "logits";
      const char* const wanted = std::getenv("LOCKSTEP_ROUNDS");
      const int most = wanted != nullptr ? std::atoi(wanted) : rounds(stretch ? 1 : 8);
      for (int round = 0; round < most; ++round) {
        const int count = near != Near::kSameOp && choice_.below(3) == 0 ? 3 : 2;
        const auto planted = choose(count, near);
        if (planted.empty()) continue;
        run_.checkpoints = set;
        std::vector<std::string> names;
        for (const PlacedBug& each : planted)
          names.push_back(fmt::format("{} in {} at {}", each.bug->name, each.layer, each.position));
        SCOPED_TRACE(fmt::format("{}; set {}, seed {}", fmt::join(names, ", "), set, seed_));
        const Style style{.name = "f32", .order = Order::kLanes8};
        const auto honest = lab_.record(run_, {.name = "f32", .order = Order::kPairwise}, program_);
        Patient patient(program_);
        for (const PlacedBug& each : planted) each.make(patient);
        const auto suspect = lab_.record(run_, style, patient);
        const auto found = diagnose(lab_, honest, suspect, {.seconds = 10}).diagnoses;
        bool whole = true;
        for (size_t i = 0; i < planted.size(); ++i) {
          const bool named = std::ranges::any_of(
              found, [&](const Diagnosis& each) { return is_named(*planted[i].bug, each); });
          if (!named && !shows(planted, i, suspect, style)) continue;
          ++score.planted;
          score.named += named ? 1 : 0;
          whole = whole && named;
        }
        for (const Diagnosis& each : found) {
          if (each.cause == doctor::kUnknown) {
            ++score.unknown;
            continue;
          }
          const bool right = std::ranges::any_of(
              planted, [&](const PlacedBug& bug) { return is_named(*bug.bug, each); });
          score.wrong += right ? 0 : 1;
          whole = whole && right;
          EXPECT_TRUE(right) << each.cause << ": " << each.text;
        }
        if (table && !whole) {
          fmt::print("{} | {} | {}\n", GetParam().name, set, fmt::join(names, ", "));
          for (const Diagnosis& each : found)
            fmt::print("    {}: {} [{}]\n", each.cause, each.text,
                       fmt::join(each.alternatives, ", "));
        }
      }
      if (table)
        fmt::print("{} {} {}: planted {}, named {}, unknown {}, wrong {}\n", GetParam().name, set,
                   near == Near::kAnywhere    ? "anywhere"
                   : near == Near::kSameLayer ? "same layer"
                                              : "same op",
                   score.planted, score.named, score.unknown, score.wrong);
      // Of a stretch rounding in one op is not known; two in one op may come to a third. Over all
      // models 98% are named; of one model's few rounds two may not be.
      if (!stretch) {
        EXPECT_GE(score.named * 20, score.planted * (near == Near::kSameOp ? 12 : 16)) << set;
      }
    }
}

std::vector<Subject> forged_subjects() {
  std::vector<Subject> out = subjects();
  std::erase_if(out, [](const Subject& each) { return !each.file.empty(); });
  return out;
}

INSTANTIATE_TEST_SUITE_P(Models, DoctorPairs, testing::ValuesIn(forged_subjects()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace lockstep::engines
