// The doctor: gives the defects of a comparison their causes, and proves them. Each hypothesis
// (hypothesis.h) is put into the forward pass and judged by the judge's own bounds, from what the
// side recorded (examination.h).
#pragma once

#include <atomic>
#include <vector>

#include "doctor/diagnosis.h"
#include "exec/f64/products.h"
#include "model/model.h"
#include "parity/compare.h"
#include "parity/scope.h"

namespace lockstep::doctor {

struct Options {
  int depth = 3;                                     // causes that are looked for, on each side
  double seconds = 60;                               // that it may take, about
  int threads = 0;                                   // 0: all cores
  std::string checkpoints = "all";                   // as the comparison's
  std::shared_ptr<exec::f64::Products> device = {};  // what multiplies; null: the CPU
  // For mistakes that no row shows by itself (pooled.h), where nothing else is wrong: of all ops,
  // and in f32 too.
  bool search = false;
  const std::atomic<bool>* interrupted = nullptr;  // set: what was found so far is all; may be null
};

// In order of execution. `scope` is the one that the comparison was made with (parity/compare.h),
// `model` its model; without a model only what the tokens tell is said.
std::vector<Diagnosis> diagnose(const parity::Comparison& comparison, const parity::Scope& scope,
                                const model::Model* model, const Options& options);

}  // namespace lockstep::doctor
