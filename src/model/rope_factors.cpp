#include "model/rope_factors.h"

#include "quant/decode.h"

namespace lockstep::model {

std::vector<float> rope_factors(const Config& config, int64_t context_length, Weights& weights) {
  const int64_t pairs = config.rope.dims / 2;
  const auto shared = weights.optional_vector("rope_freqs.weight", pairs);
  // Both are asked for, so that neither counts as unused; the context decides.
  const auto shorter = weights.optional_vector("rope_factors_short.weight", pairs);
  const auto longer = weights.optional_vector("rope_factors_long.weight", pairs);
  const auto& chosen = shared                                          ? shared
                       : context_length > config.rope_original_context ? longer
                                                                       : shorter;
  if (!chosen || chosen->data.empty()) return {};  // a wrong shape has been reported
  std::vector<float> factors(static_cast<size_t>(pairs));
  quant::decode(chosen->format->format(), chosen->data.data(), pairs, factors.data());
  return factors;
}

}  // namespace lockstep::model
