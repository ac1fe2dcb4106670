// Mistakes that no row of a side shows by itself, as diagnoses.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "doctor/diagnosis.h"
#include "exec/f64/products.h"
#include "model/model.h"
#include "parity/scope.h"

namespace lockstep::doctor {

// A side where every row is within its bound.
struct HiddenPatient {
  const parity::Comparison& comparison;
  const parity::Scope& scope;
  const parity::SideScope& side;
  parity::Side which;
  parity::SideJudgement parity::CheckpointResult::*judgement;
  const model::Model& model;
  std::string used;  // checkpoints (trace/checkpoints.h)
  int threads = 1;
  double seconds = 0;
  bool asked = false;  // else only where coarse types hide mistakes, and of ops that cost little
  const std::atomic<bool>* interrupted = nullptr;
  exec::f64::Products& products = exec::f64::cpu_products();
};

std::vector<Diagnosis> diagnose_hidden(const HiddenPatient& patient);

}  // namespace lockstep::doctor
