// Quantized rows to floats, exactly as the format defines them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace lockstep::quant {

// Decodes `values` consecutive values (a multiple of the block). `source` needs no alignment.
void decode(Format format, const std::byte* source, int64_t values, float* out);

}  // namespace lockstep::quant
