// The table of kernels of one target, LS_TARGET. To be included after a lanes_*.h header.
#pragma once

#include "exec/cpu/kernels/attention.h"
#include "exec/cpu/kernels/quantize.h"

namespace lockstep::exec::cpu {

extern const Kernels LS_TARGET;
const Kernels LS_TARGET = {
    .product_f32 = product_float<ReadF32>,
    .product_f16 = product_float<ReadF16>,
    .product_bf16 = product_float<ReadBF16>,
    .product_q4_0 = product_int<kCodesQ4_0>,
    .product_q4_1 = product_int<kCodesQ4_1>,
    .product_q5_0 = product_int<kCodesQ5_0>,
    .product_q5_1 = product_int<kCodesQ5_1>,
    .product_q8_0 = product_int<kCodesQ8_0>,
    .product_q2_k = product_int<kCodesQ2_K>,
    .product_q3_k = product_int<kCodesQ3_K>,
    .product_q4_k = product_int<kCodesQ4_K>,
    .product_q5_k = product_int<kCodesQ5_K>,
    .product_q6_k = product_int<kCodesQ6_K>,
    .product_iq4_nl = product_int<kCodesIQ4_NL>,
    .product_iq4_xs = product_int<kCodesIQ4_XS>,
    .product_mxfp4 = product_int<kCodesMXFP4>,
    .quantize_tile = quantize_tile,
    .transpose_tile = transpose_tile,
    .attention = attention,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .silu = silu,
    .gelu_tanh = gelu_tanh,
    .clamped_swish = clamped_swish,
    .add = add,
    .scale = scale,
    .soft_cap = soft_cap,
    .to_half = to_half,
};

}  // namespace lockstep::exec::cpu
