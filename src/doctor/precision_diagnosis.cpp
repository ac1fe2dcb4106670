#include "doctor/precision_diagnosis.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "doctor/find_precision.h"
#include "doctor/hypothesis.h"
#include "parity/arithmetic.h"
#include "parity/replay.h"

namespace lockstep::doctor {
namespace {

using parity::OwnError;
using parity::Replay;

// Checkpoints of one name that are looked at; the others have what these have.
constexpr int64_t kLookedAt = 3;

// What a manifest cannot say: a table, results with a scale, and a second type where the field for
// it says already how products round.
bool declarable(const PrecisionFinding& finding, const trace::Precision& declared) {
  if (finding.cause == "precision.table") return false;
  if (finding.cause == "precision.result" && !trace::find_dtype(finding.type)) return false;
  const bool of_activations = finding.cause == "precision.result" ||
                              (finding.cause == "precision.operands" && finding.of != "weights");
  return !of_activations || !declared.activations || *declared.activations == "tf32" ||
         trace::find_dtype(*declared.activations);
}

void tell(const PrecisionFinding& finding, const parity::SideScope& side, bool all_over,
          Diagnosis& out) {
  out.parameters = {{"type", finding.type}, {"of", finding.of}};
  out.text = "it " + what_is_done(finding, all_over);
  if (!finding.alternatives.empty()) {
    const std::string others = fmt::format("{}", fmt::join(finding.alternatives, ", "));
    out.parameters.push_back({"also", others});
    out.text += fmt::format(" ({} {} the same here)", others,
                            finding.alternatives.size() == 1 ? "is" : "are");
  }
  out.text += side.trace->manifest().engine.precision.compute
                  ? " although its manifest says " + parity::describe(side.precision)
                  : " and its manifest does not say it";
  out.fix = declarable(finding, side.precision)
                ? "Declare it in the manifest (engine.precision), or look at where the engine "
                  "rounds."
                : "Look at where the engine rounds, if it is not meant to.";
}

class PrecisionDoctor {
 public:
  PrecisionDoctor(const PrecisionPatient& patient, std::span<const WrongCheckpoint> wrong)
      : patient_(patient), forward_(patient.side.forwards.front()), wrong_(wrong) {
    const op::Program& program = forward_.program;
    for (const op::Op& op : program.ops)
      for (const op::ValueId id : op.outputs) kind_[id] = op.what.index();
  }

  PrecisionOutcome run() {
    out_.precision = patient_.side.precision;
    merge(search(some_of_each()));
    if (findings_.empty()) return std::move(out_);
    merge(search(others_alike()));
    const bool all_over = std::ranges::any_of(
        findings_, [&](const PrecisionFinding& finding) { return is_all_over(finding); });
    if (all_over) out_.precision = declare_;
    for (const PrecisionFinding& finding : findings_) begin(finding);
    Replay coarse(forward_, declare_, *patient_.side.trace, patient_.side.tokens, patient_.used,
                  patient_.threads, patient_.products);
    for (const WrongCheckpoint& each : wrong_) settle(each, coarse, all_over);
    for (size_t i = 0; i < findings_.size(); ++i) finish(findings_[i], out_.diagnoses[i]);
    std::erase_if(out_.diagnoses, [](const Diagnosis& each) { return each.explained == 0; });
    return std::move(out_);
  }

 private:
  bool can_say(const PrecisionFinding& finding) const {
    return declarable(finding, patient_.side.precision);
  }

  std::string tail_of(op::ValueId id) const { return short_name(forward_.program.value(id)); }

  WrongRows rows_of(const WrongCheckpoint& each) const {
    return {each.id, each.positions, std::ssize(patient_.side.replayed)};
  }

  std::vector<WrongRows> some_of_each() {
    std::map<std::string, std::vector<const WrongCheckpoint*>> by_tail;
    for (const WrongCheckpoint& each : wrong_) by_tail[tail_of(each.id)].push_back(&each);
    std::map<op::ValueId, WrongRows> out;  // in order of execution
    for (const auto& [tail, all] : by_tail) {
      const int64_t count = std::min(kLookedAt, std::ssize(all));
      for (int64_t i = 0; i < count; ++i) {
        const auto& each =
            *all[static_cast<size_t>(count == 1 ? 0 : i * (std::ssize(all) - 1) / (count - 1))];
        out[each.id] = rows_of(each);
        looked_at_.insert(each.id);
      }
    }
    std::vector<WrongRows> rows;
    for (auto& [id, each] : out) rows.push_back(std::move(each));
    return rows;
  }

  // Where it is not all over, each is looked at: other layers may have another mistake.
  std::vector<WrongRows> others_alike() {
    std::set<std::string> tails;
    for (const PrecisionFinding& finding : findings_)
      if (!is_all_over(finding) || !can_say(finding))
        for (const op::ValueId id : finding.values) tails.insert(tail_of(id));
    std::vector<WrongRows> out;
    for (const WrongCheckpoint& each : wrong_)
      if (!looked_at_.contains(each.id) && tails.contains(tail_of(each.id)))
        out.push_back(rows_of(each));
    return out;
  }

  PrecisionFindings search(const std::vector<WrongRows>& rows) const {
    if (rows.empty()) return {};
    return find_precision(
        {forward_, *patient_.side.trace, patient_.side.tokens, patient_.side.precision,
         patient_.used, patient_.threads, patient_.may_be_sums, patient_.late, patient_.products},
        rows);
  }

  void merge(PrecisionFindings found) {
    if (!found.found()) return;
    if (findings_.empty()) declare_ = found.declare;
    for (PrecisionFinding& each : found.all) {
      const auto same = std::ranges::find_if(findings_, [&](const PrecisionFinding& other) {
        return other.cause == each.cause && other.type == each.type && other.of == each.of;
      });
      if (same == findings_.end()) {
        findings_.push_back(std::move(each));
        continue;
      }
      same->values.insert(same->values.end(), each.values.begin(), each.values.end());
      std::ranges::sort(same->values);
      same->ratio_before = std::max(same->ratio_before, each.ratio_before);
      same->ratio_after = std::max(same->ratio_after, each.ratio_after);
      same->proved = same->proved && each.proved;
    }
  }

  // Of the checkpoints that ops of these kinds compute, most are wrong: an engine with a coarse
  // arithmetic has its errors wherever it rounds.
  bool is_all_over(const PrecisionFinding& finding) const {
    std::set<size_t> kinds;
    for (const op::ValueId id : finding.values) kinds.insert(kind_.at(id));
    int64_t judged = 0;
    for (const size_t kind : kinds) {
      const auto at = patient_.judged_ops.find(kind);
      judged += at != patient_.judged_ops.end() ? at->second : 0;
    }
    const auto wrong = std::ranges::count_if(
        wrong_, [&](const WrongCheckpoint& each) { return kinds.contains(kind_.at(each.id)); });
    return 2 * wrong > judged && wrong > 1;
  }

  void begin(const PrecisionFinding& finding) {
    Diagnosis made;
    made.side = patient_.which;
    made.cause = finding.cause;
    made.proved = finding.proved;
    out_.diagnoses.push_back(std::move(made));
  }

  // The finding that a checkpoint goes to: its own, that of its name, or the first.
  std::optional<size_t> home_of(op::ValueId id, bool all_over) const {
    for (size_t i = 0; i < findings_.size(); ++i)
      if (std::ranges::find(findings_[i].values, id) != findings_[i].values.end()) return i;
    if (!all_over) return std::nullopt;
    for (size_t i = 0; i < findings_.size(); ++i)
      for (const op::ValueId other : findings_[i].values)
        if (tail_of(other) == tail_of(id)) return i;
    return 0;
  }

  void settle(const WrongCheckpoint& each, Replay& coarse, bool all_over) {
    std::vector<int64_t>& left = out_.left[each.result->name];
    left = each.positions;
    const auto home = home_of(each.id, all_over);
    if (!home) return;
    const PrecisionFinding& finding = findings_[*home];
    Diagnosis& diagnosis = out_.diagnoses[*home];
    double after = 0;
    if (can_say(finding)) {
      const auto judged = coarse.judge(each.id, each.positions);
      if (!judged) return;
      left.clear();
      for (const OwnError& own : *judged) {
        if (own.defect()) left.push_back(own.position);
        if (!own.defect()) after = std::max(after, own.ratio());
      }
    } else if (std::ranges::binary_search(finding.values, each.id)) {
      left.clear();
    }
    const auto explained = std::ssize(each.positions) - std::ssize(left);
    if (explained == 0) return;
    diagnosis.ratio_after = std::max(diagnosis.ratio_after, after);
    if (diagnosis.checkpoint.empty()) diagnosis.checkpoint = each.result->name;
    diagnosis.checkpoints.push_back(each.result->name);
    diagnosis.rows += std::ssize(each.positions);
    diagnosis.explained += explained;
    std::set<int64_t> layers(diagnosis.layers.begin(), diagnosis.layers.end());
    if (each.result->layer >= 0) layers.insert(each.result->layer);
    diagnosis.layers.assign(layers.begin(), layers.end());
    std::set<int64_t> positions(diagnosis.positions.begin(), diagnosis.positions.end());
    positions.insert(each.positions.begin(), each.positions.end());
    diagnosis.positions.assign(positions.begin(), positions.end());
  }

  void finish(const PrecisionFinding& finding, Diagnosis& diagnosis) const {
    diagnosis.ratio_before = finding.ratio_before;
    if (!can_say(finding)) diagnosis.ratio_after = finding.ratio_after;
    const bool all_over = is_all_over(finding);
    tell(finding, patient_.side, all_over, diagnosis);
    if (can_say(finding) && all_over)
      diagnosis.text += fmt::format("; declare it ({}) and the comparison judges by that",
                                    parity::describe(declare_));
    diagnosis.tried = 1;
    diagnosis.attempts = {{finding.cause, diagnosis.text, 0, diagnosis.ratio_after}};
  }

  const PrecisionPatient& patient_;
  const parity::Forward& forward_;
  std::span<const WrongCheckpoint> wrong_;
  std::map<op::ValueId, size_t> kind_;  // of the op that computes a value
  std::set<op::ValueId> looked_at_;
  std::vector<PrecisionFinding> findings_;
  trace::Precision declare_;
  PrecisionOutcome out_;
};

}  // namespace

void tell_precision(const PrecisionFinding& finding, const parity::SideScope& side,
                    Diagnosis& out) {
  out.cause = finding.cause;
  out.proved = finding.proved;
  out.ratio_before = finding.ratio_before;
  out.ratio_after = finding.ratio_after;
  tell(finding, side, /*all_over=*/false, out);
}

PrecisionOutcome diagnose_precision(const PrecisionPatient& patient,
                                    std::span<const WrongCheckpoint> wrong) {
  return PrecisionDoctor(patient, wrong).run();
}

}  // namespace lockstep::doctor
