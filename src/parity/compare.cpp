#include "parity/compare.h"

#include <chrono>

#include <fmt/ranges.h>

#include "base/parallel.h"
#include "parity/align_experts.h"
#include "parity/conclude.h"
#include "parity/evidence.h"
#include "parity/explain.h"
#include "parity/judge.h"
#include "parity/measure.h"
#include "parity/open_rows.h"
#include "parity/part.h"
#include "parity/scope.h"
#include "parity/shape.h"

namespace lockstep::parity {
std::string_view name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"exact",  "rounding", "drift",   "close",
                                         "defect", "garbage",  "differs", "missing"};
  return kNames[static_cast<int>(verdict)];
}

std::string_view name(Side side) {
  constexpr std::string_view kNames[] = {"reference", "suspect", "both", "undetermined"};
  return kNames[static_cast<int>(side)];
}

Result<Comparison> compare(const trace::Trace& reference, const trace::Trace& suspect,
                           const model::Model* model, const CompareOptions& options,
                           Scope* decided) {
  const auto started = std::chrono::steady_clock::now();
  const Traces traces{reference, suspect};
  const int threads = options.threads > 0 ? options.threads : available_cores();
  Comparison out;
  out.tokens = compare_tokens(reference.manifest(), suspect.manifest());
  if (!out.tokens.same_prompt)
    out.prompts = name_difference(reference.manifest(), suspect.manifest(), options.tokens);
  LS_TRY(Scope scope, decide_scope(traces, model, options, out));
  const bool judges = scope.program() != nullptr;
  if (options.parts != nullptr) {
    LS_TRY_VOID(take_over(*options.parts, traces, model, options, scope, out));
  } else {
    measure(traces, scope, threads, out);
    if (judges) judge_rows(scope, options, threads, out);
  }
  measure_coverage(traces, scope, out);
  note_other_experts(traces, scope, out);
  if (judges) {
    settle_sides(scope, options, threads, out);
    LS_TRY_VOID(check_file(scope.reference, &CheckpointResult::reference, out));
    LS_TRY_VOID(check_file(scope.suspect, &CheckpointResult::suspect, out));
    if (options.suspect_model != nullptr) {
      LS_TRY(out.explanation, explain(traces, scope, options, threads, out));
      const auto& settings = out.explanation->settings;
      if (!settings.empty()) out.other_settings = fmt::format("{}", fmt::join(settings, "; "));
    }
  }
  out.reference.choices = judge_choices(reference, scope.whole_logits, threads);
  out.suspect.choices = judge_choices(suspect, scope.whole_logits, threads);
  for (CheckpointResult& result : out.checkpoints) result.verdict = verdict_of(result);
  out.evidence = find_evidence(scope, options, out);
  conclude(traces, scope, options, out);
  find_shape(scope, options, threads, out);
  if (options.rows) {
    list_tokens(scope, options, out);
    open_rows(traces, scope, options, threads, out);
  }
  if (const std::string& failure = options.products().failure(); !failure.empty())
    out.notes.push_back(
        fmt::format("the GPU was given up, and the CPU did the rest of the work: {}", failure));
  if (decided != nullptr) *decided = std::move(scope);
  out.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return out;
}

}  // namespace lockstep::parity
