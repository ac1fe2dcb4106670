// Eight numbers of a weight's row at a time, in every format.
#pragma once

#include "exec/cuda/weights/unit.cuh"

namespace lockstep::exec::cuda {

// Columns 8 * part and on of a unit; zeros past the end.
template <quant::Format K>
struct CodesSource {
  static __device__ void load(const WeightView& w, int64_t row, int64_t unit, int part,
                              float (&out)[8]) {
    Unit<kCodesOf<K>> loaded;
    loaded.load(w, row, unit);
    // The place within the unit is known only at run time: choose among all, in registers.
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i / 2 != part) continue;
      const float4 four = loaded.numbers(i);
      out[i % 2 * 4] = four.x;
      out[i % 2 * 4 + 1] = four.y;
      out[i % 2 * 4 + 2] = four.z;
      out[i % 2 * 4 + 3] = four.w;
    }
  }
};
template <class T>
struct FloatsSource {
  static __device__ void load(const WeightView& w, int64_t row, int64_t unit, int part,
                              float (&out)[8]) {
    const uint8_t* data = w.codes + row * w.row_stride * static_cast<int64_t>(sizeof(T));
    const int64_t first = unit * kUnit + part * 8;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      out[i] = first + i < w.columns ? Stored<T>::number(data, first + i) : 0.0f;
  }
};

}  // namespace lockstep::exec::cuda
