#include "parity/scope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace lockstep::parity {
namespace {

// A vocabulary may be padded on one side, by less than this part of it. More is a row cut off.
constexpr double kPadding = 0.1;

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

// The traces may be of two files: of another format, or of another model.
Result<void> compare_models(const Traces& traces, bool both_given, Comparison& out) {
  const trace::ModelInfo& a = traces.reference.manifest().model;
  const trace::ModelInfo& b = traces.suspect.manifest().model;
  if (!a.architecture.empty() && !b.architecture.empty() && a.architecture != b.architecture)
    return error("the traces are of different architectures: {} and {}", a.architecture,
                 b.architecture);
  if (a.fingerprint.empty() || b.fingerprint.empty() || a.fingerprint == b.fingerprint) return {};
  out.other_models = fmt::format("{} and {}", a.file, b.file);
  if (both_given) return {};
  out.notes.push_back(
      fmt::format("the traces are of different model files ({}): differences include those of the "
                  "weights",
                  out.other_models));
  return {};
}

std::vector<int64_t> covered(const trace::Trace& trace) {
  std::vector<int64_t> all;
  for (const trace::StepInfo& step : trace.manifest().steps)
    for (int64_t i = 0; i < step.tokens; ++i) all.push_back(step.first_position + i);
  return all;
}

void choose_compared(const Traces& traces, const TokenAgreement& tokens, Scope& scope) {
  const int64_t both = std::min(traces.reference.positions(), traces.suspect.positions());
  // Traces without token ids are taken at their positions.
  const int64_t shared = tokens.known ? std::min(both, tokens.shared) : both;
  const auto a = covered(traces.reference);
  const auto b = covered(traces.suspect);
  const auto beyond = [&](int64_t position) { return position >= shared; };
  std::ranges::set_intersection(a, b, std::back_inserter(scope.compared));
  std::erase_if(scope.compared, beyond);
  std::ranges::set_union(a, b, std::back_inserter(scope.anywhere));
  // What follows a fork is not to be compared; what one side has beyond the other's end is.
  if (tokens.first_difference) std::erase_if(scope.anywhere, beyond);
}

int64_t whole_logits(const Traces& traces, std::span<const model::Model* const> models) {
  int64_t most = 0;
  for (const model::Model* model : models)
    if (model != nullptr) most = std::max(most, model->config().vocabulary);
  for (const trace::Trace* trace : {&traces.reference, &traces.suspect})
    if (const auto* info = trace->checkpoint("logits"))
      most = std::max({most, info->width, info->full_width});
  return static_cast<int64_t>(std::ceil((1 - kPadding) * static_cast<double>(most)));
}

}  // namespace

Result<Scope> decide_scope(const Traces& traces, const model::Model* model,
                           const CompareOptions& options, Comparison& out) {
  Scope scope;
  scope.keeps_rows = options.rows;
  scope.reference = {
      .name = "reference",
      .trace = &traces.reference,
      .precision = traces.reference.manifest().engine.precision,
  };
  scope.suspect = {
      .name = "suspect",
      .trace = &traces.suspect,
      .precision = traces.suspect.manifest().engine.precision,
  };
  const auto& a = traces.reference.manifest().tokens;
  const auto& b = traces.suspect.manifest().tokens;
  scope.reference.tokens = a.empty() ? b : a;
  scope.suspect.tokens = b.empty() ? a : b;
  note_incomplete(traces.reference, "reference", out);
  note_incomplete(traces.suspect, "suspect", out);
  const model::Model* of_suspect = options.suspect_model;
  LS_TRY_VOID(compare_models(traces, of_suspect != nullptr, out));
  if (model != nullptr) LS_TRY_VOID(choose_models(traces, *model, of_suspect, scope, out));
  scope.whole_logits = whole_logits(traces, std::array{model, of_suspect});
  list_checkpoints(traces, options.checkpoints, scope, out);
  if (out.checkpoints.empty())
    return error("no checkpoint of the traces matches '{}'", options.checkpoints);
  note_ranges(traces, out);
  choose_compared(traces, out.tokens, scope);
  out.positions_compared = static_cast<int64_t>(scope.compared.size());
  if (scope.program() != nullptr) {
    LS_TRY_VOID(choose_replayed(options, scope, out));
  } else if (!options.positions.empty()) {
    out.notes.push_back("positions were chosen for a replay, which needs a model file");
  }
  return scope;
}

}  // namespace lockstep::parity
