// Test-only: models, traces of engines on them, and where a bug must be found.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bugs.h"
#include "engine.h"
#include "forge/spec.h"
#include "model/model.h"
#include "parity/compare.h"
#include "trace/trace.h"

namespace lockstep::engines {

// A folder of its own, gone with the object.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string next();  // a path that does not exist yet

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

// A run on given tokens: the prompt in one step, the rest one by one.
struct Job {
  std::vector<int32_t> tokens;
  int64_t prompt = 0;
  std::string checkpoints = "ops";
  int64_t recorded_from = 0;  // steps before this position are computed and not recorded
};

class Lab {
 public:
  explicit Lab(model::Model model) : model_(std::move(model)) {}
  static Lab forged(const forge::Spec& spec);
  static Lab shipped(const std::string& name);  // a file in models/

  const model::Model& model() const { return model_; }
  op::Program program(const Job& run) const;

  trace::Trace record(const Job& run, const Style& style, const op::Program& program,
                      std::span<const Quirk> quirks = {}, const op::Deviations& deviations = {});
  trace::Trace record(const Job& run, const Style& style, const Patient& patient);
  parity::Comparison compare(const trace::Trace& reference, const trace::Trace& suspect) const;

 private:
  model::Model model_;
  std::shared_ptr<Scratch> scratch_ = std::make_shared<Scratch>();
};

// The first recorded checkpoint, in order of execution, that a wrong value reaches.
std::string first_reached(const op::Program& program, op::ValueId wrong, const trace::Trace& trace);

std::vector<int32_t> random_tokens(uint64_t seed, int64_t count, int64_t vocabulary);

}  // namespace lockstep::engines
