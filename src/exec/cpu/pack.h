// Weights repacked into panels of 16 interleaved rows (kernels/panel_format.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/cpu/kernels/kernels.h"
#include "op/op.h"

namespace lockstep::exec::cpu {

// Bytes of one panel of the weight, and how many panels it has.
int64_t panel_bytes(const op::Weight& weight);
int64_t panel_count(const op::Weight& weight);

// Whether products with the weight take 16-bit codes instead of floats.
bool takes_codes(const op::Weight& weight);
ProductKernel product_kernel(const Kernels& kernels, const op::Weight& weight);

// Writes one panel. Rows past the end of the weight are zero.
void pack_panel(const op::Weight& weight, int64_t panel, std::byte* out);

}  // namespace lockstep::exec::cpu
