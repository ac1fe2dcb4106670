// Kernels for machines with AVX2, FMA and F16C.
#ifdef __x86_64__
#include "exec/cpu/kernels/lanes_avx2.h"

#define LS_TARGET kAvx2
#include "exec/cpu/kernels/target.h"
#endif
