// One comparison on many machines. What there is to say of a checkpoint depends on the two traces
// alone, never on what is said of others: so a part is a stretch of neighbouring checkpoints, which
// is measured and judged by itself. What follows from all of them (verdict, first defect, causes)
// is found where the parts come together, by the same code as without parts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/part.h"
#include "parity/scope.h"

namespace lockstep::parity {

// What the findings of all parts must have in common.
struct Identity {
  std::string program;      // with its version
  std::string reference;    // fingerprints
  std::string suspect;      //
  std::string model;        // empty: none
  std::string other_model;  // of the suspect, where that ran another file
  std::string checkpoints;  // CompareOptions
  std::vector<int64_t> positions;

  bool operator==(const Identity&) const = default;
};
Identity identity_of(const Traces& traces, const model::Model* model,
                     const CompareOptions& options);

// What a part has found, with all that is said of single rows.
struct Findings {
  std::string source;  // the file that they come from, for messages
  Part part;
  Identity identity;
  // Where the traces and the model lay; empty: there is none.
  struct Paths {
    std::string reference, suspect, model, suspect_model, names;
  } paths;
  // Of each: what measure.h and judge.h write.
  std::vector<CheckpointResult> checkpoints;
  ChoiceStatistics choices;            // where logits are among them
  std::vector<PositionLogits> logits;  // the same
  // Of each side; several parts may have derived the same ones.
  DerivedChoices reference_experts, suspect_experts;
  std::string failure;  // of the GPU, where it was given up
  double seconds = 0;
};

// The part's stretch of the work is as long as the others', about.
Result<Findings> compare_part(const trace::Trace& reference, const trace::Trace& suspect,
                              const model::Model* model, CompareOptions options, const Part& part);

// Takes the work of all parts over into a comparison that has its scope. Findings may come from
// anywhere: an error unless they are of this comparison and whole.
Result<void> take_over(const std::vector<Findings>& parts, const Traces& traces,
                       const model::Model* model, const CompareOptions& options, const Scope& scope,
                       Comparison& out);

// docs/compare-json.md
std::string to_json(const Findings& findings);
Result<Findings> parse_findings(std::string_view text, const std::string& source);
Result<Findings> read_findings(const std::string& path);

}  // namespace lockstep::parity
