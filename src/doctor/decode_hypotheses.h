// Hypotheses on how weights are decoded. Where the inputs and outputs of a projection or a lookup
// were recorded, the search of find_decoding.h says which decodings to try; elsewhere all are.
#pragma once

#include <vector>

#include "doctor/examination.h"
#include "doctor/find_decoding.h"
#include "doctor/search.h"

namespace lockstep::doctor {

// Weights of Linear and Embed become those of `file`, decoded as the fit says, where they have its
// format; others stay as they are. `file`: the program with the weights as the file has them.
Alteration decoded_as(const op::Program& file, DecodingFit fit, int threads);

struct DecodingTarget {
  std::vector<size_t> ops;
  std::vector<Hypothesis> hypotheses;  // likeliest first
};

// One mistake in a format makes all tensors of the format wrong: these come first.
enum class DecodingScope { kFormats, kTensors };
std::vector<DecodingTarget> decode_hypotheses(Examination& examination, DecodingScope scope);

// Whether the second, found at another op, is the first over again.
bool same_mistake(const Hypothesis& a, const Hypothesis& b);

// What explains a result with NaNs or infinities by its decoding, which needs no replay: nothing
// else is as sure where numbers are none. Nothing: no decoding gives it.
std::optional<Explanation> explain_garbage(Examination& examination);

}  // namespace lockstep::doctor
