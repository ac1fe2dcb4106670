// Kernels for machines with nothing special.
#include "exec/cpu/kernels/lanes_portable.h"

#define LS_TARGET kPortable
#include "exec/cpu/kernels/target.h"
