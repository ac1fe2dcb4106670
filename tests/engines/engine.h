// Test-only: an engine in single or double precision, in any honest order of summation, and with
// bugs where a test asks for them. Obvious code; nothing of it ships.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "exec/executor.h"
#include "op/deviation.h"
#include "parity/test_support.h"
#include "trace/manifest.h"

namespace lockstep::engines {

// The arithmetic of an honest engine.
struct Style {
  std::string name = "f32";
  bool doubles = false;       // computes in f64
  bool shows_floats = false;  // an f64 engine that records f32
  parity::Order order = parity::Order::kSequential;
  std::optional<DType> activations{};  // every result is rounded to this
  std::optional<DType> kv{};           // keys and values too
  bool int8 = false;                   // activations are rounded to 8 bits before products
  double masked = 0;                   // what hidden scores are shown as; 0: minus infinity
  // By the names of a manifest's precision; empty: not rounded.
  std::string products{};    // activations, before they meet a weight
  std::string cache{};       // keys and values, and
  bool cache_as_is = false;  // queries and probabilities too, as those are multiplied as they are
  std::string weights{};     // matrices of the file; plain types: all weights
  std::string factors{};     // tf32: both factors of every product
  bool half_sums = false;    // products of f16 numbers are added up in f16, and
  bool says_sums = true;     // it says so
  bool experts_in_order = false;  // chosen experts by their number, not by their score
  bool silent = false;            // it says f32, whatever it does
};

trace::Precision precision_of(const Style& style);

// What happens to the numbers of one value on their way: no other op or row, but other digits.
struct Quirk {
  enum class Kind {
    kNone,
    kHalfInput,     // the op reads its input rounded to half precision
    kBfloatInput,   // the same, bfloat16
    kBfloatOutput,  // its result is rounded to bfloat16
    kNan,           // one NaN in its result at `position`
    kInfinity,      // one infinity
    kHalfCache,     // keys and values are kept in half precision
    kNoMaximum,     // no bug: the softmax does not subtract the largest score
  };
  Kind kind = Kind::kNone;
  op::ValueId value = -1;  // first output of the op concerned
  int64_t position = -1;
};

std::unique_ptr<exec::Executor> make_engine(const op::Program& program, const Style& style,
                                            std::span<const Quirk> quirks = {},
                                            const op::Deviations& deviations = {});

}  // namespace lockstep::engines
