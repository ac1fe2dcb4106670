// Encoders of single blocks. A format without one (the IQ ones) cannot be written.
#pragma once

#include "quant/blocks.h"

namespace lockstep::quant {

// `x` holds kValues finite values.
void encode_block(const float* x, BlockF32& out);
void encode_block(const float* x, BlockF16& out);
void encode_block(const float* x, BlockBF16& out);
void encode_block(const float* x, BlockQ4_0& out);
void encode_block(const float* x, BlockQ4_1& out);
void encode_block(const float* x, BlockQ5_0& out);
void encode_block(const float* x, BlockQ5_1& out);
void encode_block(const float* x, BlockQ8_0& out);
void encode_block(const float* x, BlockMXFP4& out);
void encode_block(const float* x, BlockQ2_K& out);
void encode_block(const float* x, BlockQ3_K& out);
void encode_block(const float* x, BlockQ4_K& out);
void encode_block(const float* x, BlockQ5_K& out);
void encode_block(const float* x, BlockQ6_K& out);

}  // namespace lockstep::quant
