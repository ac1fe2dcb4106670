// Precisions that an engine has and does not declare, as diagnoses; and what is wrong beside them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "doctor/diagnosis.h"
#include "doctor/find_precision.h"
#include "exec/f64/products.h"
#include "parity/scope.h"

namespace lockstep::doctor {

// A checkpoint with wrong rows, all of them numbers.
struct WrongCheckpoint {
  const parity::CheckpointResult* result = nullptr;
  op::ValueId id = -1;
  std::vector<int64_t> positions;
};

struct PrecisionPatient {
  const parity::SideScope& side;
  parity::Side which;
  std::string_view used;                 // checkpoints (trace/checkpoints.h)
  std::map<size_t, int64_t> judged_ops;  // checkpoints that were judged, by the kind of their op
  int threads = 1;
  std::function<bool(const WrongRows&)> may_be_sums = {};  // find_precision.h
  std::function<bool()> late = {};
  exec::f64::Products& products = exec::f64::cpu_products();
};

struct PrecisionOutcome {
  std::vector<Diagnosis> diagnoses;
  // What the side is to be judged by: what it computes in, where it does so all over; else what it
  // declares.
  trace::Precision precision;
  std::map<std::string, std::vector<int64_t>> left;  // wrong rows that are not explained so
};

// A precision that one op has, in words: text, parameters and what to look at.
void tell_precision(const PrecisionFinding& finding, const parity::SideScope& side, Diagnosis& out);

// No diagnoses: it is nothing of that kind.
PrecisionOutcome diagnose_precision(const PrecisionPatient& patient,
                                    std::span<const WrongCheckpoint> wrong);

}  // namespace lockstep::doctor
