// Marks functions that CPU and CUDA code share.
#pragma once

#ifdef __CUDACC__
#define LS_HD __host__ __device__
#else
#define LS_HD
#endif
