// Encoders of single blocks. A format without one (the IQ ones) cannot be written.
#pragma once

#include "quant/blocks.h"

namespace lockstep::quant {

// `x` holds kValues finite values; `weights` as many that are not negative, or is null: what a
// squared error of each value counts. Formats that leave nothing to choose take no notice of them.
void encode_block(const float* x, const float* weights, BlockF32& out);
void encode_block(const float* x, const float* weights, BlockF16& out);
void encode_block(const float* x, const float* weights, BlockBF16& out);
void encode_block(const float* x, const float* weights, BlockQ4_0& out);
void encode_block(const float* x, const float* weights, BlockQ4_1& out);
void encode_block(const float* x, const float* weights, BlockQ5_0& out);
void encode_block(const float* x, const float* weights, BlockQ5_1& out);
void encode_block(const float* x, const float* weights, BlockQ8_0& out);
void encode_block(const float* x, const float* weights, BlockMXFP4& out);
void encode_block(const float* x, const float* weights, BlockQ2_K& out);
void encode_block(const float* x, const float* weights, BlockQ3_K& out);
void encode_block(const float* x, const float* weights, BlockQ4_K& out);
void encode_block(const float* x, const float* weights, BlockQ5_K& out);
void encode_block(const float* x, const float* weights, BlockQ6_K& out);

}  // namespace lockstep::quant
