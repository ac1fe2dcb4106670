#include "parity/explain.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "base/parallel.h"
#include "base/progress.h"
#include "lockstep/detail/checkpoints.h"
#include "parity/align_experts.h"
#include "parity/replay.h"
#include "trace/checkpoints.h"

namespace lockstep::parity {
namespace {

const op::Op& producer_of(const op::Program& program, op::ValueId id) {
  return *std::ranges::find_if(program.ops, [&](const op::Op& op) {
    return std::ranges::find(op.outputs, id) != op.outputs.end();
  });
}

std::vector<const op::Weight*> weights_of(const op::What& what) {
  std::vector<const op::Weight*> out;
  const auto add = [&](const std::optional<op::Weight>& weight) {
    if (weight) out.push_back(&*weight);
  };
  if (const auto* embed = std::get_if<op::Embed>(&what)) out.push_back(&embed->table);
  if (const auto* norm = std::get_if<op::Norm>(&what)) {
    out.push_back(&norm->weight);
    add(norm->bias);
  }
  if (const auto* linear = std::get_if<op::Linear>(&what)) {
    out.push_back(&linear->weight);
    add(linear->bias);
  }
  if (const auto* experts = std::get_if<op::ExpertLinear>(&what)) {
    out.push_back(&experts->weight);
    add(experts->bias);
  }
  if (const auto* choose = std::get_if<op::Choose>(&what)) add(choose->bias);
  return out;
}

bool is_product_with_weights(const op::What& what) {
  return std::holds_alternative<op::Linear>(what) || std::holds_alternative<op::ExpertLinear>(what);
}

// The five numbers that a difference is split by.
struct Five {
  const double* reference;     // recorded
  const double* suspect;       // recorded
  const double* by_reference;  // the reference's file on the reference's inputs
  const double* by_both;       // the suspect's file on the reference's inputs
  const double* by_suspect;    // the suspect's file on the suspect's inputs
};

Parts split(const Five& row, int64_t columns) {
  Parts out;
  for (int64_t i = 0; i < columns; ++i) {
    const double a = row.reference[i];
    const double b = row.suspect[i];
    const double parts[kOrigins] = {row.by_both[i] - row.by_reference[i],
                                    row.by_suspect[i] - row.by_both[i], b - row.by_suspect[i],
                                    row.by_reference[i] - a};
    const double difference = b - a;
    // What is not finite is judged elsewhere, and has no part that could be told from another.
    if (!std::isfinite(difference) ||
        !std::ranges::all_of(parts, [](double part) { return std::isfinite(part); }))
      continue;
    out.reference += a * a;
    out.difference += difference * difference;
    for (size_t p = 0; p < kOrigins; ++p) {
      out.squares[p] += parts[p] * parts[p];
      out.products[p] += parts[p] * difference;
    }
  }
  return out;
}

// All values of a kind of recording, computed three times: by each side from its own inputs, and by
// the suspect's file from the reference's.
class Explainer {
 public:
  Explainer(const Traces& traces, const Scope& scope, const CompareOptions& options, int threads,
            const std::set<std::string>& recorded)
      : traces_(traces), scope_(scope), threads_(threads) {
    const auto add = [&](const SideScope& by, const SideScope& from) {
      // The files have the same values, and the side whose inputs are taken has their tokens.
      replays_.push_back(std::make_unique<Replay>(by.forwards.front(), from.precision, *from.trace,
                                                  from.tokens, options.checkpoints, threads,
                                                  options.products()));
      replays_.back()->use_only(recorded);
    };
    add(scope.reference, scope.reference);
    add(scope.suspect, scope.reference);
    add(scope.suspect, scope.suspect);
  }

  // Nothing where it cannot be replayed.
  std::optional<ExplainedValue> value(const std::string& checkpoint) {
    const op::ValueId id = scope_.ids.at(checkpoint);
    const std::vector<int64_t> positions = positions_of(checkpoint);
    if (positions.empty()) return std::nullopt;
    ExplainedValue out;
    out.checkpoint = checkpoint;
    out.layer = layer_of(checkpoint);
    out.positions = std::ssize(positions);
    describe(id, positions.front(), out);
    size_t rows = positions.size();
    for (const auto& replay : replays_) rows = std::min(rows, replay->group_rows(id, positions));
    for (size_t first = 0; first < positions.size(); first += rows) {
      const auto some =
          std::span(positions).subspan(first, std::min(rows, positions.size() - first));
      if (!add(id, some, positions.back() + 1, out.parts)) return std::nullopt;
    }
    release_pages(scope_.reference);
    release_pages(scope_.suspect);
    return out;
  }

 private:
  // Positions that are judged on both sides; where experts stand in slots, those where both sides
  // say that they have the same experts in the same slots.
  std::vector<int64_t> positions_of(const std::string& checkpoint) const {
    const std::string_view leaf = detail::checkpoint_leaf(checkpoint);
    const bool in_slots = leaf == "ffn_weights" || leaf.starts_with("ffn_expert_");
    std::vector<int64_t> out;
    for (const int64_t position : scope_.judged) {
      if (!traces_.reference.row(checkpoint, position) ||
          !traces_.suspect.row(checkpoint, position))
        continue;
      const auto slots = slots_of_suspect(traces_, checkpoint, position);
      if (std::ranges::is_sorted(slots) && slots.empty() != in_slots) out.push_back(position);
    }
    return out;
  }

  void describe(op::ValueId id, int64_t position, ExplainedValue& out) const {
    const op::Program& a = scope_.reference.forwards.front().program;
    const op::Program& b = scope_.suspect.forwards.front().program;
    const std::vector<size_t> stretch = replays_.front()->stretch(id, position);
    int64_t checkpoints = 0;
    for (const size_t index : stretch) {
      const op::Op& op = a.ops[index];
      checkpoints += a.value(op.outputs[0]).checkpoint ? 1 : 0;
      if (is_product_with_weights(op.what)) out.work = Work::kProduct;
      if (std::holds_alternative<op::Attention>(op.what)) out.work = Work::kAttention;
      const auto own = weights_of(op.what);
      const auto others = weights_of(producer_of(b, op.outputs[0]).what);
      for (size_t i = 0; i < std::min(own.size(), others.size()); ++i)
        out.tensors.push_back({own[i]->name, std::string(own[i]->format->name),
                               std::string(others[i]->format->name)});
    }
    if (checkpoints > 1) out.work = Work::kSeveral;
  }

  bool add(op::ValueId id, std::span<const int64_t> positions, int64_t end, Parts& out) {
    std::array<std::optional<Matrix>, 5> made;
    // Side by side: what one of them does on a single core costs the others nothing.
    parallel_for(
        3, 1,
        [&](int64_t begin, int64_t last) {
          for (int64_t i = begin; i < last; ++i) {
            const auto at = static_cast<size_t>(i);
            made[at + 2] = replays_[at]->replayed_rows(id, positions, end);
          }
        },
        threads_);
    made[0] = replays_.front()->recorded_rows(id, positions);
    made[1] = replays_.back()->recorded_rows(id, positions);
    if (!std::ranges::all_of(made, [](const auto& matrix) { return matrix.has_value(); }))
      return false;
    int64_t columns = made[0]->columns;
    for (const auto& matrix : made) columns = std::min(columns, matrix->columns);
    std::vector<Parts> rows(positions.size());
    parallel_rows(std::ssize(positions), columns, threads_, [&](int64_t r) {
      rows[static_cast<size_t>(r)] = split(
          {made[0]->row(r), made[1]->row(r), made[2]->row(r), made[3]->row(r), made[4]->row(r)},
          columns);
    });
    for (const Parts& row : rows) out.add(row);
    return true;
  }

  const Traces& traces_;
  const Scope& scope_;
  const int threads_;
  std::vector<std::unique_ptr<Replay>> replays_;
};

// What both sides recorded and can be held side by side, in order of execution.
std::vector<std::string> recorded_on_both(const Scope& scope, const Comparison& comparison) {
  const op::Program& program = scope.reference.forwards.front().program;
  std::vector<std::string> out;
  for (const CheckpointResult& result : comparison.checkpoints) {
    const auto id = scope.ids.find(result.name);
    if (id == scope.ids.end() || result.positions == 0) continue;
    // Scores are what attention computes on its way; experts that were chosen are no numbers.
    if (program.value(id->second).shape == op::Value::Shape::kScores ||
        std::holds_alternative<op::Choose>(producer_of(program, id->second).what))
      continue;
    out.push_back(result.name);
  }
  return out;
}

}  // namespace

std::string_view name(Origin origin) {
  constexpr std::string_view kNames[] = {"weights", "inherited", "rounding", "reference_rounding"};
  return kNames[static_cast<size_t>(origin)];
}

void Parts::add(const Parts& other) {
  reference += other.reference;
  difference += other.difference;
  for (size_t p = 0; p < kOrigins; ++p) {
    squares[p] += other.squares[p];
    products[p] += other.products[p];
  }
}

Result<Explanation> explain(const Traces& traces, const Scope& scope, const CompareOptions& options,
                            int threads, const Comparison& comparison) {
  Explanation out;
  out.settings = other_settings_of(scope.reference.forwards.front().program,
                                   scope.suspect.forwards.front().program);
  const std::vector<std::string> all = recorded_on_both(scope, comparison);
  std::vector<std::string> layers;
  for (const std::string& each : all)
    if (trace::in_checkpoints("layers", each)) layers.push_back(each);
  // A choice of experts that was recorded decides which of them compute, though it is no number.
  std::set<std::string> recorded(all.begin(), all.end());
  for (const CheckpointResult& result : comparison.checkpoints)
    if (result.in_reference && result.in_suspect && result.name.ends_with(".ffn_choice"))
      recorded.insert(result.name);
  const bool only_layers = layers.size() == all.size();
  Progress progress("explaining", std::ssize(layers) + (only_layers ? 0 : std::ssize(all)),
                    "checkpoints");
  const auto run = [&](const std::vector<std::string>& names, const std::set<std::string>& used) {
    Explainer explainer(traces, scope, options, threads, used);
    std::vector<ExplainedValue> found;
    for (const std::string& each : names) {
      if (auto value = explainer.value(each)) {
        out.weights_differ =
            out.weights_differ || value->parts.squares[static_cast<size_t>(Origin::kWeights)] > 0;
        found.push_back(std::move(*value));
      }
      progress.advance(1);
    }
    return found;
  };
  if (!only_layers) out.values = run(all, recorded);
  out.layers = run(layers, {layers.begin(), layers.end()});
  LS_TRY_VOID(explain_choices(traces, scope, threads, out));
  return out;
}

}  // namespace lockstep::parity
