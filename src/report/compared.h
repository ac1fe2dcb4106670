// A comparison with all that reports tell of it: who was compared, and the causes of what is wrong.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "model/model.h"
#include "report/report.h"
#include "tokenizer/tokenizer.h"
#include "trace/name_map.h"

namespace lockstep::report {

struct Compared {
  parity::Comparison comparison;
  Subject subject;  // with diagnoses
};

// How far causes are looked for.
struct Diagnosing {
  int depth = 0;                   // causes, on each side; 0: none
  double seconds = 0;              // at least; as long as the comparison took in any case
  bool search = false;             // also what no row shows by itself (doctor/pooled.h)
  std::function<void()> begins{};  // called before the search; may be empty
  const std::atomic<bool>* interrupted = nullptr;  // set: what was found so far is all; may be null
};

// `model` and `tokenizer` may be null. Traces may be one and the same.
Result<Compared> compare(const trace::Trace& reference, const trace::Trace& suspect,
                         const model::Model* model, const tokenizer::Tokenizer* tokenizer,
                         parity::CompareOptions options, const Diagnosing& diagnosing);

// Engines may record under their own names; the manifest says whose they are. `given` goes before
// the maps that are built in.
void rename_checkpoints(const std::optional<trace::NameMap>& given, trace::Trace& trace);

}  // namespace lockstep::report
