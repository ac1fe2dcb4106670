// The formats that files of models are made of, decoded with wide registers: the same bits as
// blocks.h, which says what they are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace lockstep::quant {

// Decodes blocks as decode() does; null where this machine or this build has nothing quicker.
using DecodeBlocks = void (*)(const std::byte* source, int64_t blocks, float* out);
DecodeBlocks wide_decode(Format format);

}  // namespace lockstep::quant
