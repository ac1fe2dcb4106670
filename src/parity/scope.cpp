#include "parity/scope.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "gguf/fingerprint.h"
#include "trace/checkpoints.h"

namespace lockstep::parity {
namespace {

// Multiply-adds that a replay may cost before positions are sampled: some tens of seconds.
constexpr double kReplayBudget = 3e10;

void note_incomplete(const trace::Trace& trace, const char* side, Comparison& out) {
  const trace::Manifest& manifest = trace.manifest();
  if (!manifest.complete)
    out.notes.push_back(fmt::format("the {}'s trace is not complete: its run was cut short", side));
  if (manifest.dropped_steps > 0)
    out.notes.push_back(fmt::format("the {}'s trace lacks {} steps that were dropped", side,
                                    manifest.dropped_steps));
  if (!manifest.engine.precision.compute)
    out.notes.push_back(fmt::format("the {} does not say its precision; f32 is assumed", side));
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += fmt::format("{}{}", i > 0 ? ", " : "", names[i]);
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

// What the engine says of its run, and what is not compared since nobody knows what it is.
void note_engine(const trace::Trace& trace, const char* side, UnknownNames& unknown,
                 Comparison& out) {
  const trace::Manifest& manifest = trace.manifest();
  for (const std::string& note : manifest.notes)
    out.notes.push_back(fmt::format("the {}: {}", side, note));
  unknown.not_recorded = manifest.unmapped;
  if (!unknown.recorded.empty())
    out.notes.push_back(
        fmt::format("of the {}, {} recorded values have names that are no "
                    "checkpoints and are not compared: {}",
                    side, unknown.recorded.size(), some_of(unknown.recorded)));
  if (!unknown.not_recorded.empty())
    out.notes.push_back(fmt::format(
        "the {} computes more, which no checkpoint names and which was not recorded: {}", side,
        some_of(unknown.not_recorded)));
}

// Positions that only one side has are not compared, and are told.
void note_ranges(const Traces& traces, Comparison& out) {
  if (!out.tokens.known)
    out.notes.push_back("a side does not say its tokens: positions are taken to be the same");
  const auto range = [](const trace::Trace& trace) {
    const auto& steps = trace.manifest().steps;
    return steps.empty()
               ? "none"
               : fmt::format("{} to {}", steps.front().first_position, trace.positions() - 1);
  };
  const std::string a = range(traces.reference);
  const std::string b = range(traces.suspect);
  if (a != b)
    out.notes.push_back(fmt::format("the reference has positions {}, the suspect {}", a, b));
  const auto dtype = [](const trace::Trace& trace) {
    const auto& checkpoints = trace.manifest().checkpoints;
    return checkpoints.empty() ? DType::kF32 : checkpoints.front().dtype;
  };
  const DType x = dtype(traces.reference);
  const DType y = dtype(traces.suspect);
  if (x != y)
    out.notes.push_back(fmt::format("values are {} in the reference and {} in the suspect",
                                    lockstep::name(x), lockstep::name(y)));
}

// A vocabulary may be padded on one side; any other value of another width is another value.
void note_widths(const Traces& traces, Comparison& out) {
  for (CheckpointResult& c : out.checkpoints) {
    if (!c.in_reference || !c.in_suspect) continue;
    const int64_t a = traces.reference.checkpoint(c.name)->width;
    const int64_t b = traces.suspect.checkpoint(c.name)->width;
    if (a == b) continue;
    c.comparable = c.name == "logits";
    out.notes.push_back(fmt::format("{} has {} numbers in the reference and {} in the suspect: {}",
                                    c.name, a, b,
                                    c.comparable ? "compared as far as both go" : "not compared"));
  }
}

// One file can be given; a side that ran another one is measured, not judged.
Result<void> check_model(const Traces& traces, const model::Model* model, Scope& scope,
                         Comparison& out) {
  const trace::ModelInfo& a = traces.reference.manifest().model;
  const trace::ModelInfo& b = traces.suspect.manifest().model;
  if (!a.architecture.empty() && !b.architecture.empty() && a.architecture != b.architecture)
    return error("the traces are of different architectures: {} and {}", a.architecture,
                 b.architecture);
  if (!a.fingerprint.empty() && !b.fingerprint.empty() && a.fingerprint != b.fingerprint)
    out.notes.push_back(
        fmt::format("the traces are of different model files ({} and {}): differences include "
                    "those of the weights",
                    a.file, b.file));
  if (model == nullptr) {
    out.notes.push_back("no model file was given (-m): differences are measured, not judged");
    return {};
  }
  const std::string own = gguf::fingerprint(model->file());
  const auto matches = [&](const trace::ModelInfo& info) {
    return info.fingerprint.empty() || info.fingerprint == own;
  };
  scope.reference_judged = matches(a);
  scope.suspect_judged = matches(b);
  if (!scope.reference_judged && !scope.suspect_judged)
    return error("{} is not the model of the traces (fingerprint {}, the traces have {} of {})",
                 model->file().path(), own, a.fingerprint, a.file);
  if (!scope.reference_judged || !scope.suspect_judged)
    out.notes.push_back(
        fmt::format("the {} ran another model file ({}) than {}: only the other side is judged",
                    scope.reference_judged ? "suspect" : "reference",
                    scope.reference_judged ? b.file : a.file, model->file().path()));
  // Tokens and positions index the model's tables.
  const auto& tokens = out.tokens.tokens;
  const auto unknown = std::ranges::find_if(
      tokens, [&](int32_t token) { return token >= model->config().vocabulary; });
  if (unknown != tokens.end())
    return error("token {} of the traces is {}, but {} has only {} tokens",
                 unknown - tokens.begin(), *unknown, model->file().path(),
                 model->config().vocabulary);
  const int64_t positions = std::max(traces.reference.positions(), traces.suspect.positions());
  LS_TRY(scope.program,
         model->program(std::clamp<int64_t>(positions, 1, model->config().context_length)));
  return {};
}

int64_t layer_of(const std::string& checkpoint) {
  int64_t layer = -1;
  return std::sscanf(checkpoint.c_str(), "blk.%ld.", &layer) == 1 ? layer : -1;
}

// In the order of the program where there is one, else as the reference has them.
void list_checkpoints(const Traces& traces, const std::string& selected, Scope& scope,
                      Comparison& out) {
  std::set<std::string> listed;
  const auto list = [&](const std::string& name) {
    if (!trace::in_checkpoints(selected, name) || !listed.insert(name).second) return;
    CheckpointResult result;
    result.name = name;
    result.layer = layer_of(name);
    result.in_reference = traces.reference.has(name);
    result.in_suspect = traces.suspect.has(name);
    out.checkpoints.push_back(std::move(result));
  };
  // A program's values are numbered in order of execution.
  for (size_t i = 0; scope.program && i < scope.program->values.size(); ++i) {
    const std::string& name = scope.program->values[i].name;
    scope.ids[name] = static_cast<op::ValueId>(i);
    if (traces.reference.has(name) || traces.suspect.has(name)) list(name);
  }
  // Of engines with a name map, what only they have and no checkpoint names is listed apart.
  const auto list_side = [&](const trace::Trace& own, const trace::Trace& other,
                             UnknownNames& unknown) {
    const bool mapped = trace::find_name_map(own.manifest().engine.name) != nullptr;
    for (const auto& info : own.manifest().checkpoints)
      if (mapped && !listed.contains(info.name) && !trace::is_checkpoint_name(info.name) &&
          !other.has(info.name))
        unknown.recorded.push_back(info.name);
      else
        list(info.name);
  };
  list_side(traces.reference, traces.suspect, out.unknown_in_reference);
  list_side(traces.suspect, traces.reference, out.unknown_in_suspect);
}

std::vector<int64_t> covered(const trace::Trace& trace) {
  std::vector<int64_t> all;
  for (const trace::StepInfo& step : trace.manifest().steps)
    for (int64_t i = 0; i < step.tokens; ++i) all.push_back(step.first_position + i);
  return all;
}

int64_t shared_positions(const Traces& traces, const TokenAgreement& tokens) {
  const int64_t both = std::min(traces.reference.positions(), traces.suspect.positions());
  // Traces without token ids are taken at their positions.
  return tokens.known ? std::min(both, tokens.shared) : both;
}

void choose_compared(const Traces& traces, int64_t shared, const TokenAgreement& tokens,
                     Scope& scope) {
  const auto a = covered(traces.reference);
  const auto b = covered(traces.suspect);
  const auto beyond = [&](int64_t position) { return position >= shared; };
  std::ranges::set_intersection(a, b, std::back_inserter(scope.compared));
  std::erase_if(scope.compared, beyond);
  std::ranges::set_union(a, b, std::back_inserter(scope.anywhere));
  // What follows a fork is not to be compared; what one side has beyond the other's end is.
  if (tokens.first_difference) std::erase_if(scope.anywhere, beyond);
}

// The user's, or all where that is cheap, or a sample.
Result<void> choose_replayed(const Traces& traces, const CompareOptions& options, Scope& scope,
                             Comparison& out) {
  if (!options.positions.empty()) {
    const std::set<int64_t> wanted(options.positions.begin(), options.positions.end());
    std::ranges::set_intersection(wanted, scope.compared, std::back_inserter(scope.replayed));
    if (scope.replayed.empty() && !scope.compared.empty())
      return error("none of the chosen positions is among the {} that both traces have, {} to {}",
                   scope.compared.size(), scope.compared.front(), scope.compared.back());
    out.positions_chosen = true;
    if (scope.replayed.size() < wanted.size())
      out.notes.push_back(fmt::format("{} of the chosen positions are not on both sides",
                                      wanted.size() - scope.replayed.size()));
    return {};
  }
  double cost = 0;
  for (const op::Op& op : scope.program->ops)
    if (const auto* linear = std::get_if<op::Linear>(&op.what))
      cost += 4 * static_cast<double>(linear->weight.rows * linear->weight.columns);
  const auto affordable = std::max<int64_t>(4, static_cast<int64_t>(kReplayBudget / cost));
  const auto count = static_cast<int64_t>(scope.compared.size());
  if (affordable >= count) {
    scope.replayed = scope.compared;
    return {};
  }
  // First and last, the turn from prompt to generation, and the rest evenly.
  const int64_t prompt = traces.reference.manifest().prompt_tokens;
  const auto turn = std::clamp<int64_t>(
      std::ranges::lower_bound(scope.compared, prompt) - scope.compared.begin(), 1, count - 1);
  std::set<int64_t> chosen = {0, turn - 1, turn, count - 1};
  for (int64_t i = 0; i < affordable; ++i) chosen.insert(i * (count - 1) / affordable);
  for (const int64_t i : chosen) scope.replayed.push_back(scope.compared[static_cast<size_t>(i)]);
  scope.sampled = true;
  out.notes.push_back(
      fmt::format("{} of {} positions were replayed, and of each checkpoint the one where the "
                  "sides differ most; --positions chooses others",
                  scope.replayed.size(), count));
  return {};
}

}  // namespace

Result<Scope> decide_scope(const Traces& traces, const model::Model* model,
                           const CompareOptions& options, Comparison& out) {
  Scope scope;
  note_incomplete(traces.reference, "reference", out);
  note_incomplete(traces.suspect, "suspect", out);
  LS_TRY_VOID(check_model(traces, model, scope, out));
  list_checkpoints(traces, options.checkpoints, scope, out);
  if (out.checkpoints.empty())
    return error("no checkpoint of the traces matches '{}'", options.checkpoints);
  note_engine(traces.reference, "reference", out.unknown_in_reference, out);
  note_engine(traces.suspect, "suspect", out.unknown_in_suspect, out);
  note_ranges(traces, out);
  note_widths(traces, out);
  const int64_t shared = shared_positions(traces, out.tokens);
  choose_compared(traces, shared, out.tokens, scope);
  out.positions_compared = static_cast<int64_t>(scope.compared.size());
  if (scope.program) {
    LS_TRY_VOID(choose_replayed(traces, options, scope, out));
    const int64_t context = model->config().context_length;
    if (std::erase_if(scope.replayed, [&](int64_t position) { return position >= context; }) > 0)
      out.notes.push_back(fmt::format(
          "positions from {} on are beyond the model's context and were not replayed", context));
    out.positions_judged = static_cast<int64_t>(scope.replayed.size());
  } else if (!options.positions.empty()) {
    out.notes.push_back("positions were chosen for a replay, which needs a model file");
  }
  return scope;
}

}  // namespace lockstep::parity
