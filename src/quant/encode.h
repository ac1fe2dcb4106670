// Floats to quantized rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace lockstep::quant {

// Whether encode() can write the format: every decodable one except the IQ ones.
bool encodable(Format format);

// Encodes `values` consecutive values (a multiple of the block). Values must be finite. `weights`,
// where not null, has one number for each value, finite and not negative: what its squared error
// counts.
void encode(Format format, const float* source, int64_t values, std::byte* out,
            const float* weights = nullptr);

}  // namespace lockstep::quant
