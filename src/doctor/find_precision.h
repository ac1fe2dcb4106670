// Finds out that an engine computes in a coarser type than it says, from the numbers it recorded.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/f64/products.h"
#include "parity/forward.h"
#include "parity/own_error.h"
#include "trace/trace.h"

namespace lockstep::doctor {

// A checkpoint, and the positions where it is wrong by what the engine declares.
struct WrongRows {
  op::ValueId id = -1;
  std::vector<int64_t> positions;
  int64_t judged = 0;  // positions that were; 0: not known
};

struct PrecisionCase {
  const parity::Forward& forward;
  const trace::Trace& trace;
  std::span<const int32_t> tokens;  // of every position
  trace::Precision declared;        // or assumed: what the rows are wrong by
  std::string_view used = "all";    // checkpoints that are read (trace/checkpoints.h)
  int threads = 1;
  // Whether these rows may be wrong by sums in a coarse type. Such sums have no other sign than
  // that their bound is wide, which any small mistake is within too.
  std::function<bool(const WrongRows&)> may_be_sums = {};
  std::function<bool()> late = {};  // true: what was found so far is all
  exec::f64::Products& products = exec::f64::cpu_products();
};

// One type at one place of the arithmetic. When it counts as proof:
// - precision.result: every number is one of the type, of at least sixteen numbers that would not
//   be if the op had been computed in the declared type; and they are what the true results become
//   when they are rounded to the type. Numbers that are on a coarse grid by nature (zeros, the
//   embedding of an F16 file, whole numbers) are on it in the true result too, and do not count.
// - precision.operands, precision.cache, precision.table: with these factors rounded to the type,
//   the recorded results come out within the bound of the declared type, which is hundreds of times
//   finer than what the rounding does.
// - precision.sum: every number is one of the type, but further from the true result than one
//   rounding puts it, in most rows, and nothing else explains it. The order of summation is not
//   known: this is consistent, not proved.
struct PrecisionFinding {
  std::string cause;
  std::string type;                       // as manifests have it
  std::vector<std::string> alternatives;  // types that give the same here
  std::string of;                         // what is rounded: "results", "weights", "keys", ...
  std::vector<op::ValueId> values;        // checkpoints, ascending
  int64_t numbers = 0;                    // that tell something, of those looked at
  int64_t on_grid = 0;                    // of those, numbers of the type
  int64_t rows = 0;                       // looked at: some of the wrong ones
  int64_t explained = 0;                  // of those, within the bound with this rounding
  double ratio_before = 0;                // worst error over bound of these rows
  double ratio_after = 0;                 // with this rounding
  bool proved = false;
};

struct PrecisionFindings {
  std::vector<PrecisionFinding> all;  // those of most checkpoints first
  trace::Precision declare;           // as declared, with what of this a manifest can say
  // All wrong rows that were given: by what is declared, and by what was found.
  int64_t rows = 0;
  int64_t left = 0;  // that are still wrong
  double ratio_before = 0;
  double ratio_after = 0;

  bool found() const { return !all.empty(); }
};

PrecisionFindings find_precision(const PrecisionCase& patient, std::span<const WrongRows> wrong);

// "rounds weights to bfloat16"; "computes in bfloat16" where it does so all over.
std::string what_is_done(const PrecisionFinding& finding, bool all_over);

// "rounds the results of all ops to bfloat16 although its manifest says f32; declare it
// (activations bf16) and the comparison judges by that".
std::string describe(const PrecisionFindings& findings, const trace::Precision& declared,
                     const op::Program& program);

}  // namespace lockstep::doctor
