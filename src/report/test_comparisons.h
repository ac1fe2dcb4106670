// Comparisons made by hand, for tests of reports.
#pragma once

#include <string>

#include "report/report.h"

namespace lockstep::report {

using parity::CheckpointResult;
using parity::Comparison;
using parity::Side;
using parity::Verdict;

// Everything that a form may stumble over.
inline const std::string kNasty =
    "a|b`*_<&>\"'\x1b[31m\xff\xef\xbf\xbf,\n]]>\xe2\x80\xae"
    "é";

inline CheckpointResult checkpoint(const std::string& name, int64_t layer, Verdict verdict,
                                   double relative) {
  CheckpointResult out;
  out.name = name;
  out.layer = layer;
  out.verdict = verdict;
  out.in_reference = out.in_suspect = verdict != Verdict::kMissing;
  if (!out.in_suspect) return out;
  out.positions = 3;
  for (int i = 0; i < 3; ++i) out.metrics.add(1, 1 + relative, i);
  out.worst_relative_l2 = relative;
  out.worst_position = 2;
  out.reference.judged = out.suspect.judged = 3;
  out.reference.worst = parity::OwnError{.position = 1, .error = 1e-8, .expected = 1e-8};
  out.suspect.worst = out.reference.worst;
  return out;
}

inline Comparison defective() {
  Comparison c;
  c.verdict = "defect";
  c.checkpoints = {checkpoint("embedding", -1, Verdict::kExact, 0),
                   checkpoint("blk.0.q", 0, Verdict::kMissing, 0),
                   checkpoint("blk.0.output", 0, Verdict::kRounding, 1e-7),
                   checkpoint("blk.1.ffn_act", 1, Verdict::kDefect, 0.5),
                   checkpoint("blk.1.output", 1, Verdict::kDrift, 0.1),
                   checkpoint("logits", -1, Verdict::kDrift, 0.2)};
  parity::OwnError own{.position = 3, .error = 0.5, .expected = 1e-6};
  own.recorded = 1.5;
  own.replayed = 1;
  own.worst_index = 17;
  own.worst_ratio = 5;
  c.checkpoints[3].suspect.worst = c.checkpoints[3].suspect.first_defect = own;
  c.first_defect = parity::Defect{"blk.1.ffn_act", 1, 3, Side::kSuspect, own};
  c.defects = 1;
  c.coverage = 0.99999;
  c.judged = 1;
  c.tokens.shared = 9;
  c.choices = {9, 8, 9, 9 * 0.25, 0.5};
  c.notes = {"a note"};
  return c;
}

inline Subject subject() {
  Subject out;
  out.reference = {"ref.trace", "lockstep 1 on cpu, f32"};
  out.suspect = {"mine.trace", "mine, f16"};
  out.model = "model.gguf";
  return out;
}

}  // namespace lockstep::report
