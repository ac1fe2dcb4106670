// Kernels for machines with AVX2, FMA, F16C and AVX-VNNI.
#ifdef __x86_64__
#include "exec/cpu/kernels/lanes_avx2.h"

#define LS_TARGET kAvx2Vnni
#include "exec/cpu/kernels/target.h"
#endif
