#include "parity/part.h"

#include <algorithm>
#include <chrono>

#include "base/parallel.h"
#include "gguf/fingerprint.h"
#include "parity/effort.h"
#include "parity/judge.h"
#include "parity/measure.h"

namespace lockstep::parity {
namespace {

// Measuring a number on both sides costs about as much as this many multiply-adds.
constexpr double kOfAMeasuredNumber = 20;

double work_on(const CheckpointResult& result, const Scope& scope) {
  double work = 1;  // whatever it is, it takes some
  const auto id = scope.ids.find(result.name);
  for (const SideScope* side : {&scope.reference, &scope.suspect}) {
    const trace::CheckpointInfo* info = side->trace->checkpoint(result.name);
    if (info == nullptr) continue;
    work += kOfAMeasuredNumber * static_cast<double>(info->width) *
            static_cast<double>(scope.compared.size());
    if (side->judged() && id != scope.ids.end())
      work += static_cast<double>(side->replayed.size()) *
              effort_of(side->forwards.front().program, *side->trace, id->second);
  }
  return work;
}

Stretch stretch_of(const Part& part, const std::vector<CheckpointResult>& checkpoints,
                   const Scope& scope) {
  std::vector<double> work;
  for (const CheckpointResult& result : checkpoints) work.push_back(work_on(result, scope));
  const std::vector<int64_t> owners = deal(work, part.of);
  const auto [begin, end] = std::equal_range(owners.begin(), owners.end(), part.index);
  return {static_cast<size_t>(begin - owners.begin()), static_cast<size_t>(end - owners.begin())};
}

}  // namespace

Identity identity_of(const Traces& traces, const model::Model* model,
                     const CompareOptions& options) {
  const auto of = [](const model::Model* file) {
    return file != nullptr ? gguf::fingerprint(file->file()) : std::string();
  };
  return {"lockstep " LOCKSTEP_VERSION,
          traces.reference.fingerprint(),
          traces.suspect.fingerprint(),
          of(model),
          of(options.suspect_model),
          options.checkpoints,
          options.positions};
}

Result<Findings> compare_part(const trace::Trace& reference, const trace::Trace& suspect,
                              const model::Model* model, CompareOptions options, const Part& part) {
  const auto started = std::chrono::steady_clock::now();
  if (options.budget > 0)
    return error(
        "a part judges the same rows on every machine, and what a budget affords depends on the "
        "machine; choose positions instead");
  const Traces traces{reference, suspect};
  const int threads = options.threads > 0 ? options.threads : available_cores();
  options.rows = true;
  Comparison work;
  work.tokens = compare_tokens(reference.manifest(), suspect.manifest());
  LS_TRY(Scope scope, decide_scope(traces, model, options, work));
  scope.stretch = stretch_of(part, work.checkpoints, scope);
  measure(traces, scope, threads, work);
  if (scope.program() != nullptr) judge_rows(scope, options, threads, work);
  Findings out;
  out.part = part;
  out.identity = identity_of(traces, model, options);
  const auto found = scope.stretch.of(work.checkpoints);
  out.checkpoints.assign(std::make_move_iterator(found.begin()),
                         std::make_move_iterator(found.end()));
  out.choices = work.choices;
  out.logits = std::move(work.logits);
  out.reference_experts = std::move(work.reference.experts);
  out.suspect_experts = std::move(work.suspect.experts);
  out.failure = options.products().failure();
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return out;
}

}  // namespace lockstep::parity
