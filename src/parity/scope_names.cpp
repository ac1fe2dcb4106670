// Which checkpoints the two traces have, and what is said of their names and widths.
#include <algorithm>
#include <cstdio>
#include <set>

#include "parity/scope.h"
#include "trace/checkpoints.h"

namespace lockstep::parity {
namespace {

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += fmt::format("{}{}", i > 0 ? ", " : "", names[i]);
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

// What the engine says of its run, and what nobody can judge since nobody knows what it is.
void note_engine(const trace::Trace& trace, const char* side, UnknownNames& unknown,
                 Comparison& out) {
  const trace::Manifest& manifest = trace.manifest();
  for (const std::string& note : manifest.notes)
    out.notes.push_back(fmt::format("the {}: {}", side, note));
  unknown.not_recorded = manifest.unmapped;
  std::vector<std::string> hints;
  for (const auto& [name, nearest] : unknown.recorded)
    hints.push_back(nearest.empty() ? name : fmt::format("{} (did you mean {}?)", name, nearest));
  if (!hints.empty())
    out.notes.push_back(
        fmt::format("of the {}, {} recorded values have names that are no "
                    "checkpoints, so that they are not judged: {}",
                    side, hints.size(), some_of(hints)));
  if (!unknown.not_recorded.empty())
    out.notes.push_back(fmt::format(
        "the {} computes more, which no checkpoint names and which was not recorded: {}", side,
        some_of(unknown.not_recorded)));
}

// Of how many numbers the whole row is, as far as a side says.
int64_t full_width(const trace::CheckpointInfo& info) {
  return std::max(info.width, info.full_width);
}

// A vocabulary may be padded on one side, and a log keeps the first numbers of a row; any other
// value of another width is another value.
void compare_widths(const Traces& traces, const Scope& scope, Comparison& out) {
  std::vector<std::string> cut;
  int64_t least = 0;
  int64_t most = 0;
  for (CheckpointResult& c : out.checkpoints) {
    if (!c.in_reference || !c.in_suspect) continue;
    const trace::CheckpointInfo& a = *traces.reference.checkpoint(c.name);
    const trace::CheckpointInfo& b = *traces.suspect.checkpoint(c.name);
    const int64_t kept = std::min(a.width, b.width);
    const int64_t whole = std::max(full_width(a), full_width(b));
    // The shorter one is the beginning of the longer one where it says so.
    const trace::CheckpointInfo& shorter = a.width <= b.width ? a : b;
    const trace::CheckpointInfo& longer = a.width <= b.width ? b : a;
    const bool prefix = shorter.full_width > shorter.width &&
                        (shorter.full_width == full_width(longer) || c.name == "logits");
    if (prefix) {
      c.share = static_cast<double>(kept) / static_cast<double>(whole);
      least = cut.empty() ? kept : std::min(least, kept);
      most = std::max(most, kept);
      cut.push_back(c.name);
      continue;
    }
    if (a.width == b.width) continue;
    c.comparable = c.name == "logits";
    if (c.comparable && kept < scope.whole_logits)
      c.share = static_cast<double>(kept) / static_cast<double>(whole);
    out.notes.push_back(fmt::format("{} has {} numbers in the reference and {} in the suspect: {}",
                                    c.name, a.width, b.width,
                                    c.comparable ? "compared as far as both go" : "not compared"));
  }
  if (cut.empty()) return;
  const std::string numbers =
      least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most);
  out.notes.push_back(
      fmt::format("of {} checkpoints only the first {} numbers of a row are on both "
                  "sides: they are compared as far as they go ({})",
                  cut.size(), numbers, some_of(cut)));
}

}  // namespace

int64_t layer_of(const std::string& checkpoint) {
  int64_t layer = -1;
  return std::sscanf(checkpoint.c_str(), "blk.%ld.", &layer) == 1 ? layer : -1;
}

// In the order of the program where there is one, else as the reference has them.
void list_checkpoints(const Traces& traces, const std::string& selected, Scope& scope,
                      Comparison& out) {
  std::set<std::string> listed;
  const auto list = [&](const std::string& name, bool known) {
    if (!trace::in_checkpoints(selected, name) || !listed.insert(name).second) return;
    CheckpointResult result;
    result.name = name;
    result.layer = layer_of(name);
    result.in_reference = traces.reference.has(name);
    result.in_suspect = traces.suspect.has(name);
    result.known = known;
    out.checkpoints.push_back(std::move(result));
  };
  // A program's values are numbered in order of execution.
  const op::Program* program = scope.program();
  for (size_t i = 0; program != nullptr && i < program->values.size(); ++i) {
    const std::string& name = program->values[i].name;
    scope.ids[name] = static_cast<op::ValueId>(i);
    if (traces.reference.has(name) || traces.suspect.has(name)) list(name, true);
  }
  // A name that is no checkpoint's is compared where both sides have it: nobody can judge it.
  const auto list_side = [&](const trace::Trace& own, const trace::Trace& other,
                             UnknownNames& unknown) {
    for (const auto& info : own.manifest().checkpoints) {
      const bool known = scope.ids.contains(info.name) || trace::is_checkpoint_name(info.name);
      if (!known)
        unknown.recorded.push_back({info.name, trace::nearest_checkpoint_name(info.name)});
      if (known || other.has(info.name)) list(info.name, known);
    }
  };
  list_side(traces.reference, traces.suspect, out.unknown_in_reference);
  list_side(traces.suspect, traces.reference, out.unknown_in_suspect);
  note_engine(traces.reference, "reference", out.unknown_in_reference, out);
  note_engine(traces.suspect, "suspect", out.unknown_in_suspect, out);
  compare_widths(traces, scope, out);
}

}  // namespace lockstep::parity
