// Kernels for machines with AVX-512 (F, BW, VL, DQ) with VNNI.
#ifdef __x86_64__
#include "exec/cpu/kernels/lanes_avx512.h"

#define LS_TARGET kAvx512Vnni
#include "exec/cpu/kernels/target.h"
#endif
