#include "parity/align_experts.h"

#include <algorithm>
#include <optional>

#include <fmt/ranges.h>

#include "lockstep/detail/checkpoints.h"
#include "parity/align.h"

namespace lockstep::parity {
namespace {

constexpr std::string_view kChosen = "ffn_choice";

std::optional<std::vector<double>> choice_of(const trace::Trace& trace, const std::string& name,
                                             int64_t position) {
  const auto row = trace.row(name, position);
  if (!row || row->lines != 1) return std::nullopt;
  return row_values(*row, row->width);
}

std::vector<double> sorted(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  return numbers;
}

}  // namespace

std::vector<int64_t> slots_of_suspect(const Traces& traces, const std::string& checkpoint,
                                      int64_t position) {
  const std::string_view leaf = detail::checkpoint_leaf(checkpoint);
  if (leaf != kChosen && leaf != "ffn_weights" && !leaf.starts_with("ffn_expert_")) return {};
  const std::string name =
      checkpoint.substr(0, checkpoint.size() - leaf.size()) + std::string(kChosen);
  const auto a = choice_of(traces.reference, name, position);
  const auto b = choice_of(traces.suspect, name, position);
  if (!a || !b || a->size() != b->size()) return {};
  std::vector<int64_t> out(a->size(), -1);
  std::vector<bool> taken(b->size());
  for (size_t slot = 0; slot < a->size(); ++slot)
    for (size_t other = 0; other < b->size() && out[slot] < 0; ++other)
      if (!taken[other] && (*a)[slot] == (*b)[other]) {
        out[slot] = static_cast<int64_t>(other);
        taken[other] = true;
      }
  for (int64_t& slot : out)
    if (slot < 0) {
      slot = std::ranges::find(taken, false) - taken.begin();
      taken[static_cast<size_t>(slot)] = true;
    }
  return out;
}

void note_other_experts(const Traces& traces, const Scope& scope, Comparison& out) {
  int64_t rows = 0, other = 0;
  std::string first;
  for (const CheckpointResult& result : out.checkpoints) {
    if (detail::checkpoint_leaf(result.name) != kChosen) continue;
    for (const int64_t position : scope.compared) {
      const auto a = choice_of(traces.reference, result.name, position);
      const auto b = choice_of(traces.suspect, result.name, position);
      if (!a || !b) continue;
      ++rows;
      if (sorted(*a) == sorted(*b)) continue;
      if (other++ == 0)
        first = fmt::format("{} at position {}, where the reference took {} and the suspect {}",
                            result.name, position, fmt::join(sorted(*a), ", "),
                            fmt::join(sorted(*b), ", "));
    }
  }
  if (other == 0) return;
  out.notes.push_back(fmt::format(
      "the sides took other experts in {} of {} rows, first {}. A side is judged by the "
      "experts that it took, and each choice by the router of its side",
      other, rows, first));
}

}  // namespace lockstep::parity
