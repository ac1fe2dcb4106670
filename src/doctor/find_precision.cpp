#include "doctor/find_precision.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "doctor/precision_guesses.h"
#include "doctor/precision_results.h"
#include "parity/replay.h"

namespace lockstep::doctor {
namespace {

using parity::OwnError;
using parity::Replay;

constexpr int64_t kFewPrecisionRows = 6;  // of a checkpoint
constexpr int64_t kFewestNumbers = 16;    // that must tell something
constexpr const char* kTable = "an embedding";
constexpr int kMostInVain = 6;  // products that no rounding explains

bool is_number(double x) {
  return std::isfinite(x);
}

// Grids that numbers of the stored type are on anyway.
bool by_storage(const Grid& grid, DType stored) {
  if (stored == DType::kBF16) return grid.fraction >= 7;
  return stored == DType::kF16 && grid.fraction >= 10;
}

class PrecisionSearch {
 public:
  PrecisionSearch(const PrecisionCase& patient, std::span<const WrongRows> wrong)
      : case_(patient), wrong_(wrong), replay_(replay(patient.declared)) {}

  PrecisionFindings run() {
    out_.declare = case_.declared;
    for (const WrongRows& rows : wrong_) {
      if (late()) break;
      look_at(rows);
    }
    settle_embedding();
    for (auto& [key, finding] : findings_) out_.all.push_back(std::move(finding));
    std::ranges::stable_sort(out_.all, [](const PrecisionFinding& a, const PrecisionFinding& b) {
      return a.values.size() > b.values.size();
    });
    for (const PrecisionFinding& finding : out_.all) declare(finding);
    if (out_.found() && !out_.declare.compute) out_.declare.compute = "f32";
    if (out_.found()) judge_all();
    return std::move(out_);
  }

 private:
  Replay replay(const trace::Precision& precision) const {
    return Replay(case_.forward, precision, case_.trace, case_.tokens, case_.used, case_.threads,
                  case_.products);
  }

  const op::Program& program() const { return case_.forward.program; }
  bool late() const { return case_.late && case_.late(); }

  void look_at(const WrongRows& rows) {
    std::vector<int64_t> positions;
    const int64_t count = std::min(kFewPrecisionRows, std::ssize(rows.positions));
    for (int64_t i = 0; i < count; ++i)
      positions.push_back(
          rows.positions[static_cast<size_t>(i * std::ssize(rows.positions) / count)]);
    const auto judged = replay_.judge(rows.id, positions, Replay::Settle::kAll);
    if (!judged) return;
    std::map<int64_t, OwnError> own;
    for (const OwnError& each : *judged)
      if (each.defect() && !each.non_finite && is_number(each.worst_ratio))
        own.emplace(each.position, each);
    positions.clear();
    for (const auto& [position, each] : own) positions.push_back(position);
    if (positions.empty()) return;
    const auto sample = PrecisionSample::take(case_.forward, case_.trace, case_.tokens, case_.used,
                                              rows.id, positions, case_.threads);
    if (!sample) {
      by_bits_alone(rows.id, positions, own);
      return;
    }
    std::vector<OwnError> errors;
    for (const int64_t position : sample->positions()) errors.push_back(own.at(position));
    most_are_wrong_ = 2 * std::ssize(rows.positions) > rows.judged;
    if (!as_result(*sample, errors)) by_guesses(*sample, errors);
  }

  static std::string key_of(const std::string& cause, const std::string& type,
                            const std::string& of) {
    return cause + "/" + type + "/" + of;
  }

  PrecisionFinding& finding(const std::string& cause, const std::string& type,
                            const std::string& of, op::ValueId id,
                            const std::vector<OwnError>& errors) {
    PrecisionFinding& out = findings_[key_of(cause, type, of)];
    if (out.values.empty()) out.proved = true;
    out.cause = cause;
    out.type = type;
    out.of = of;
    out.values.push_back(id);
    out.rows += std::ssize(errors);
    for (const OwnError& own : errors) out.ratio_before = std::max(out.ratio_before, own.ratio());
    return out;
  }

  DType stored(op::ValueId id) const {
    const auto* info = case_.trace.checkpoint(program().value(id).name);
    return info != nullptr ? info->dtype : DType::kF32;
  }

  std::vector<const Grid*> result_grids(op::ValueId id) const {
    std::vector<const Grid*> out;
    for (const Grid& grid : plain_grids())
      if (!by_storage(grid, stored(id))) out.push_back(&grid);
    // An engine that says f64 and shows it.
    if (stored(id) == DType::kF64) out.push_back(&single_grid());
    return out;
  }

  bool as_result(const PrecisionSample& sample, const std::vector<OwnError>& errors) {
    for (const Grid* grid : result_grids(sample.id())) {
      OnGrid held = hold_to_grid(*grid, sample, sample.truth(), errors);
      if (held.numbers < kFewestNumbers || held.on < held.numbers) continue;
      if (!is_rounded(held) && sample.fused_truth().rows > 0)
        held = hold_to_grid(*grid, sample, sample.fused_truth(), errors);
      // A table's numbers are of its type too, without a gate.
      if (!is_rounded(held) && by_guesses(sample, errors)) return true;
      if (!is_rounded(held)) return as_sum(*grid, sample, errors, held);
      PrecisionFinding& out = result(sample, grid->name, errors);
      out.numbers += held.numbers;
      out.on_grid += held.on;
      out.ratio_after = std::max(out.ratio_after, held.worst);
      return true;
    }
    return as_scaled_result(sample, errors);
  }

  // An embedding is a row of a weight: which of the two was rounded the other checkpoints tell.
  PrecisionFinding& result(const PrecisionSample& sample, const std::string& type,
                           const std::vector<OwnError>& errors) {
    const bool embedding = std::holds_alternative<op::Embed>(sample.op().what);
    PrecisionFinding& out =
        finding("precision.result", type, embedding ? kTable : "results", sample.id(), errors);
    out.explained += std::ssize(errors);
    return out;
  }

  // To the weights, where others are rounded so; else to the results.
  void settle_embedding() {
    for (auto at = findings_.begin(); at != findings_.end();) {
      if (at->second.of != kTable) {
        ++at;
        continue;
      }
      PrecisionFinding embedding = std::move(at->second);
      at = findings_.erase(at);
      PrecisionFinding* home = nullptr;
      for (auto& [key, other] : findings_) {
        const bool same =
            other.type == embedding.type ||
            std::ranges::find(other.alternatives, embedding.type) != other.alternatives.end();
        const bool weights = other.of == "weights" || other.of == "both factors of products";
        if (same && weights) home = &other;
      }
      embedding.of = "results";
      if (home == nullptr) {
        const auto key = key_of("precision.result", embedding.type, "results");
        const auto [place, fresh] = findings_.try_emplace(key, embedding);
        if (fresh) continue;
        home = &place->second;
      }
      home->values.insert(home->values.begin(), embedding.values.begin(), embedding.values.end());
      home->numbers += embedding.numbers;
      home->on_grid += embedding.on_grid;
      home->rows += embedding.rows;
      home->explained += embedding.explained;
      home->ratio_before = std::max(home->ratio_before, embedding.ratio_before);
    }
  }

  // Whole rows whose blocks are whole numbers or 8-bit floats times a scale.
  bool as_scaled_result(const PrecisionSample& sample, const std::vector<OwnError>& errors) {
    const op::Value& value = program().value(sample.id());
    if (value.shape != op::Value::Shape::kRows) return false;
    Matrix rows(std::ssize(sample.positions()), value.width);
    for (int64_t r = 0; r < rows.rows; ++r)
      case_.trace.row(value.name, sample.positions()[static_cast<size_t>(r)])
          ->read(0, 0, value.width, rows.row(r));
    for (const Grid& grid : scaled_grids()) {
      if (grid.scale == detail::Scale::kTensor || grid.half_scale) continue;
      if (grid.block >= value.width) continue;  // the same as a row
      const OnGrid held = hold_to_scaled_grid(grid, rows, sample, errors);
      if (held.numbers < kFewestNumbers || held.on < held.numbers || !held.near) continue;
      PrecisionFinding& out = result(sample, grid.name, errors);
      out.numbers += held.numbers;
      out.on_grid += held.on;
      return true;
    }
    return false;
  }

  // Sums in the type: consistent where the type's own bound explains the rows.
  bool as_sum(const Grid& grid, const PrecisionSample& sample, const std::vector<OwnError>& errors,
              const OnGrid& held) {
    if (!most_are_wrong_ || !trace::find_dtype(grid.name)) return false;
    trace::Precision coarse = case_.declared;
    coarse.compute = coarse.activations = coarse.kv = grid.name;
    Replay by_type = replay(coarse);
    std::vector<int64_t> positions(sample.positions().begin(), sample.positions().end());
    const auto judged = by_type.judge(sample.id(), positions, Replay::Settle::kAll);
    if (!judged) return false;
    double worst = 0;
    for (const OwnError& own : *judged) worst = std::max(worst, own.ratio());
    if (worst > 1) return false;
    if (case_.may_be_sums && !case_.may_be_sums({sample.id(), positions})) return false;
    PrecisionFinding& out = finding("precision.sum", grid.name, "sums", sample.id(), errors);
    out.numbers += held.numbers;
    out.on_grid += held.on;
    out.explained += std::ssize(errors);
    out.ratio_after = std::max(out.ratio_after, worst);
    out.proved = false;
    return true;
  }

  // With the inputs not recorded: every number on a grid, and the type explains the rows.
  void by_bits_alone(op::ValueId id, const std::vector<int64_t>& positions,
                     const std::map<int64_t, OwnError>& own) {
    for (const Grid* grid : result_grids(id)) {
      int64_t numbers = 0;
      int64_t on = 0;
      for (const int64_t position : positions) {
        const auto row = case_.trace.row(program().value(id).name, position);
        if (!row || row->lines != 1) return;
        for (int64_t i = 0; i < row->width; ++i) {
          const double x = row->at(0, i);
          int exponent = 0;
          // Zeros and powers of two are on every grid.
          if (!is_number(x) || x == 0 || std::fabs(std::frexp(x, &exponent)) == 0.5) continue;
          ++numbers;
          if (nearest(*grid, x) == x) ++on;
        }
      }
      if (numbers < 4 * kFewestNumbers || on < numbers || !trace::find_dtype(grid->name)) continue;
      trace::Precision coarse = case_.declared;
      coarse.activations = coarse.kv = grid->name;
      Replay by_type = replay(coarse);
      const auto judged = by_type.judge(id, positions, Replay::Settle::kAll);
      // Sums of numbers of a coarser type are on this grid too.
      if (!judged || std::ranges::any_of(*judged, &OwnError::defect)) return;
      std::vector<OwnError> errors;
      for (const auto& [position, each] : own) errors.push_back(each);
      PrecisionFinding& out = finding("precision.result", grid->name, "results", id, errors);
      out.numbers += numbers;
      out.on_grid += on;
      out.explained += std::ssize(errors);
      for (const OwnError& each : *judged)
        out.ratio_after = std::max(out.ratio_after, each.ratio());
      return;
    }
  }

  bool by_guesses(const PrecisionSample& sample, const std::vector<OwnError>& errors) {
    const bool product = std::holds_alternative<op::Linear>(sample.op().what);
    if (product && in_vain_ >= kMostInVain) return false;
    std::vector<Guess> guesses = guesses_of(sample);
    // What explained another checkpoint of this kind comes first, and ends the search.
    std::stable_partition(guesses.begin(), guesses.end(), [&](const Guess& guess) {
      return explained_.contains(guess.cause + guess.type + guess.of);
    });
    std::vector<GuessFit> held;
    for (const Guess& guess : guesses) {
      if (late()) break;
      GuessFit fit = hold_to(guess, sample, errors);
      if (!fit.holds) continue;
      held.push_back(fit);
      if (explained_.contains(guess.cause + guess.type + guess.of)) break;
    }
    if (held.empty()) {
      if (product) ++in_vain_;
      return false;
    }
    in_vain_ = 0;
    const auto best = std::ranges::min_element(held, {}, &GuessFit::error);
    // The first that is as good: the guesses are in order of how usual they are.
    const auto first = std::ranges::find_if(
        held, [&](const GuessFit& fit) { return fit.error <= 1.5 * best->error + 0.05; });
    const Guess& guess = *first->guess;
    explained_.insert(guess.cause + guess.type + guess.of);
    PrecisionFinding& out = finding(guess.cause, guess.type, guess.of, sample.id(), errors);
    out.numbers += count_numbers(sample);
    out.explained += first->explained;
    out.ratio_after = std::max(out.ratio_after, first->ratio);
    for (const GuessFit& fit : held)
      if (fit.guess->type != guess.type && fit.error <= 1.5 * best->error + 0.05 &&
          std::ranges::find(out.alternatives, fit.guess->type) == out.alternatives.end())
        out.alternatives.push_back(fit.guess->type);
    return true;
  }

  static int64_t count_numbers(const PrecisionSample& sample) {
    return std::ranges::count_if(sample.truth().values, is_number);
  }

  // The fields of a manifest that say it. Nothing there says that a function is looked up.
  void declare(const PrecisionFinding& finding) {
    trace::Precision& to = out_.declare;
    const auto coarser = [](std::optional<std::string>& field, const std::string& type) {
      static const std::vector<std::string> order = {"f64", "f32", "tf32", "f16", "bf16"};
      const auto place = [&](const std::string& name) {
        return std::ranges::find(order, name) - order.begin();
      };
      if (!field || place(type) > place(*field)) field = type;
    };
    if (finding.cause == "precision.sum") {
      coarser(to.compute, finding.type);
      coarser(to.activations, finding.type);
      coarser(to.kv, finding.type);
    } else if (finding.cause == "precision.cache") {
      coarser(to.kv, finding.type);
      if (finding.of == "all factors of attention" && finding.type == "bf16")
        coarser(to.activations, finding.type);
    } else if (finding.cause == "precision.operands" && finding.type == "tf32" &&
               finding.of == "both factors of products") {
      to.compute = "tf32";
    } else if (finding.cause == "precision.operands") {
      if (finding.of != "weights") coarser(to.activations, finding.type);
      if (finding.of == "weights" || finding.of == "both factors of products")
        coarser(to.weights, finding.type);
    } else if (finding.cause == "precision.result" && trace::find_dtype(finding.type)) {
      coarser(to.activations, finding.type);
      coarser(to.kv, finding.type);
    }
  }

  void judge_all() {
    Replay found = replay(out_.declare);
    for (const WrongRows& rows : wrong_) {
      if (late()) return;
      const auto before = replay_.judge(rows.id, rows.positions);
      if (!before) continue;
      std::vector<int64_t> positions;
      for (const OwnError& own : *before) {
        if (!own.settled || !own.defect()) continue;
        positions.push_back(own.position);
        out_.ratio_before = std::max(out_.ratio_before, own.ratio());
      }
      out_.rows += std::ssize(positions);
      const auto after = found.judge(rows.id, positions);
      if (!after) continue;
      for (const OwnError& own : *after) {
        if (!own.settled) continue;
        if (own.defect()) ++out_.left;
        out_.ratio_after = std::max(out_.ratio_after, own.ratio());
      }
    }
  }

  const PrecisionCase& case_;
  std::span<const WrongRows> wrong_;
  Replay replay_;
  std::map<std::string, PrecisionFinding> findings_;
  std::set<std::string> explained_;
  int in_vain_ = 0;
  bool most_are_wrong_ = true;  // rows of the checkpoint that is looked at
  PrecisionFindings out_;
};

}  // namespace

PrecisionFindings find_precision(const PrecisionCase& patient, std::span<const WrongRows> wrong) {
  return PrecisionSearch(patient, wrong).run();
}

}  // namespace lockstep::doctor
