// Kernels for machines with AVX-512 (F, BW, VL, DQ).
#ifdef __x86_64__
#include "exec/cpu/kernels/lanes_avx512.h"

#define LS_TARGET kAvx512
#include "exec/cpu/kernels/target.h"
#endif
