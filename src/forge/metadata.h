// A Spec as the metadata of a GGUF file.
#pragma once

#include <vector>

#include "base/result.h"
#include "forge/spec.h"
#include "gguf/value.h"
#include "model/config.h"

namespace lockstep::forge {

// All but general.file_type, which follows from the formats.
Result<std::vector<gguf::Entry>> metadata_of(const Spec& spec);

// What the model layer reads from that metadata: one idea of what is valid and of the defaults.
Result<model::Config> config_of(const Spec& spec, std::span<const gguf::Entry> metadata);

// What the frequencies of the pairs are divided by: [rope dims / 2].
std::vector<float> shared_rope_factors(const RopeFactors& factors, const model::Config& config);
std::vector<float> long_rope_factors(const model::Config& config);
std::vector<float> short_rope_factors(const model::Config& config);

}  // namespace lockstep::forge
