// Products of weights with one token's row. A block takes some rows of one weight, or of both of a
// pair, and has the first of them fetched to the cache before it may read its input: while it waits
// for the kernel before it, normalizes its input and makes codes of it (every block for itself),
// the memory is already at work. One kernel for all formats, so that its code stays in the
// instruction cache from launch to launch; what runs once a launch is kept short for the same
// reason.
#include "exec/cuda/shared/activation.cuh"
#include "exec/cuda/shared/pipe.cuh"
#include "exec/cuda/tokens/input.cuh"
#include "exec/cuda/weights/unit.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kWarps = kProductWarps;

using Product = TokenProducts::Product;

// A block's rows of one product, or of both of a pair.
struct Share {
  int product, count;
  int first, rows;
};
__device__ Share find_share(const TokenProducts& call) {
  const int block = static_cast<int>(blockIdx.x);
  Share out{0, call.paired ? 2 : 1, 0, 0};
  if (!call.paired)
    while (out.product + 1 < call.count && block >= call.products[out.product + 1].first_block)
      ++out.product;
  const Product& product = call.products[out.product];
  const int index = block - product.first_block;
  out.first = index * product.block_rows + min(index, product.longer_blocks);
  out.rows = product.block_rows + (index < product.longer_blocks ? 1 : 0);
  return out;
}

// By one thread of a warp for each plane: has the first of the block's rows fetched.
__device__ void fetch_rows(const TokenProducts& call, const Share& share) {
  static_assert(2 * kPlanes <= kWarps);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x % kWarp != 0 || warp >= share.count * kPlanes) return;
  const Product& product = call.products[share.product + warp / kPlanes];
  const WeightView& weight = product.weight;
  const int plane = warp % kPlanes;
  fetch_to_cache((plane == 0   ? weight.codes
                  : plane == 1 ? weight.extra
                  : plane == 2 ? weight.scales
                               : weight.blocks) +
                     share.first * weight.row_bytes[plane],
                 min(share.rows, product.early_rows) * weight.row_bytes[plane]);
}

// What a lane takes of a row at once: a unit of codes, or 16 bytes of floating point.
template <quant::Format K>
struct CodePiece {
  static constexpr int kMostRows = 4;  // at once, by registers
  Unit<kCodesOf<K>> unit;
  struct X {
    int32_t high[8], low[8];
    float scale;
    int2 sums;
  };
  static __device__ int count(const WeightView&, const Input& input) { return input.units; }
  __device__ void load(const WeightView& weight, const Input& input, int row, int i) {
    unit.template load<false>(weight, row * input.units + i,
                              row * (input.units / kUnitsOfBlock) + i / kUnitsOfBlock);
  }
  static __device__ X x_of(const Input& input, int i) {
    X out;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int4 h = input.high[k * input.units + i], l = input.low[k * input.units + i];
      out.high[4 * k] = h.x;
      out.high[4 * k + 1] = h.y;
      out.high[4 * k + 2] = h.z;
      out.high[4 * k + 3] = h.w;
      out.low[4 * k] = l.x;
      out.low[4 * k + 1] = l.y;
      out.low[4 * k + 2] = l.z;
      out.low[4 * k + 3] = l.w;
    }
    out.scale = input.scales[i];
    out.sums = input.sums[i];
    return out;
  }
  __device__ float dot(const X& x, float sum) const {
    return unit.dot(x.high, x.low, x.scale, x.sums, sum);
  }
};
template <class T>
struct FloatPiece {
  static constexpr int kMostRows = 8;
  Vector<T> vector;
  struct X {
    float numbers[Vector<T>::kNumbers];
  };
  static __device__ int count(const WeightView& weight, const Input&) {
    return static_cast<int>(weight.row_bytes[0] / 16);
  }
  __device__ void load(const WeightView& weight, const Input& input, int row, int i) {
    vector.load(weight.codes, row * count(weight, input) + i);
  }
  static __device__ X x_of(const Input& input, int i) {
    X out;
#pragma unroll
    for (int k = 0; k < Vector<T>::kNumbers / 4; ++k) {
      const int four = i * (Vector<T>::kNumbers / 4) + k;
      const float4 f = input.floats[four % 2 * input.eights + four / 2];
      out.numbers[4 * k] = f.x;
      out.numbers[4 * k + 1] = f.y;
      out.numbers[4 * k + 2] = f.z;
      out.numbers[4 * k + 3] = f.w;
    }
    return out;
  }
  __device__ float dot(const X& x, float sum) const {
    return vector.dot(x.numbers, sum);
  }
};

// R sums over a warp: lane r * (32 / R) gets that of row r. At first half of the lanes go on with
// the first half of the rows, the others with the second.
template <int R>
__device__ float sum_rows(const float (&sums)[R], int lane) {
  float left[R];
#pragma unroll
  for (int r = 0; r < R; ++r) left[r] = sums[r];
#pragma unroll
  for (int rows = R / 2, step = kWarp / 2; rows > 0; rows /= 2, step /= 2) {
    const bool upper = lane & step;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const float mine = upper ? left[rows + r] : left[r];
      left[r] = mine + __shfl_xor_sync(~0u, upper ? left[r] : left[rows + r], step);
    }
  }
#pragma unroll
  for (int step = kWarp / R / 2; step > 0; step /= 2)
    left[0] += __shfl_xor_sync(~0u, left[0], step);
  return left[0];
}

// A warp's turns at the share's products from `first` on, `count` of them with weights of one
// format. A step is a piece of R rows for each lane. The sums of a row's parts lie side by side in
// `sums`.
template <class Piece, int R>
__device__ __forceinline__ void multiply(const TokenProducts& call, const Share& share, int first,
                                         int count, const Input& input, float* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Product& plan = call.products[first];
  const int pieces = Piece::count(plan.weight, input);
#pragma unroll 1
  for (int turn = warp; turn < count * plan.tiles * plan.parts; turn += kWarps) {
    const int tile =
        plan.inverse_parts == 0
            ? turn
            : static_cast<int>(__umulhi(static_cast<unsigned>(turn), plan.inverse_parts));
    const int part = turn - tile * plan.parts;
    const bool second = tile >= plan.tiles;
    const Product& product = call.products[first + (second ? 1 : 0)];
    const int row = (second ? tile - plan.tiles : tile) * R;  // of the share
    const int begin = part * plan.part_steps * kWarp;
    const int end = min(begin + plan.part_steps * kWarp, pieces);
    float each[R] = {};
#pragma unroll 1
    for (int piece = begin + lane; piece < end; piece += kWarp) {
      Piece held[R];
#pragma unroll
      for (int r = 0; r < R; ++r)
        held[r].load(product.weight, input, share.first + min(row + r, share.rows - 1), piece);
      const auto x = Piece::x_of(input, piece);
#pragma unroll
      for (int r = 0; r < R; ++r) each[r] = held[r].dot(x, each[r]);
    }
    const float sum = sum_rows(each, lane);
    const int r = row + lane / (kWarp / R);
    if (lane % (kWarp / R) == 0 && r < share.rows)
      sums[product.first_sum + r * plan.parts + part] = sum;
  }
}

// All that the block multiplies.
__device__ __forceinline__ void multiply(const TokenProducts& call, const Share& share,
                                         const Input& input, float* sums) {
  const bool alike =
      share.count > 1 && call.products[0].weight.format == call.products[1].weight.format;
#pragma unroll 1
  for (int i = 0; i < share.count; i += alike ? 2 : 1) {
    const int first = share.product + i, count = alike ? 2 : 1;
    const Product& product = call.products[first];
    const auto with_rows = [&]<class Piece>() {
      if (Piece::kMostRows == 8 && product.rows_log == 3)
        multiply<Piece, Piece::kMostRows>(call, share, first, count, input, sums);
      else if (product.rows_log == 2)
        multiply<Piece, 4>(call, share, first, count, input, sums);
      else if (product.rows_log == 1)
        multiply<Piece, 2>(call, share, first, count, input, sums);
      else
        multiply<Piece, 1>(call, share, first, count, input, sums);
    };
    const bool codes = visit_codes(product.weight.format, [&]<quant::Format K>() {
      with_rows.template operator()<CodePiece<K>>();
    });
    if (!codes)
      visit_stored(product.weight.format,
                   [&]<class T>() { with_rows.template operator()<FloatPiece<T>>(); });
  }
}

// The sums of a product's row, its bias added, in its place.
__device__ float finish_row(const Product& product, const Share& share, int index,
                            const float& bias, const float* sums) {
  const float* parts = sums + product.first_sum + index * product.parts;
  float out = parts[0];
#pragma unroll 1
  for (int i = 1; i < product.parts; ++i) out += parts[i];
  if (product.bias != nullptr) out += bias;
  product.out[share.first + index] = out;
  return out;
}

// What finishing a row reads. A copy to shared memory, made while the block multiplies, takes no
// registers.
struct Extras {
  float bias, second_bias, addend;
};
__device__ void fetch_extras(const TokenProducts& call, const Share& share, int index, Extras& to) {
  const int row = share.first + index;
  const float* bias = call.products[share.product].bias;
  if (bias != nullptr) copy_4(&to.bias, bias + row);
  const float* second_bias = call.products[1].bias;
  if (call.paired && second_bias != nullptr) copy_4(&to.second_bias, second_bias + row);
  if (call.sum != nullptr) copy_4(&to.addend, call.addend + row);
}

__device__ __noinline__ float activate_apart(RowTask::Kind kind, float x) {
  return activate(kind, x);
}

// Gives what the row has come to.
__device__ float finish(const TokenProducts& call, const Share& share, int index,
                        const Extras& extras, const float* sums) {
  float value = finish_row(call.products[share.product], share, index, extras.bias, sums);
  const int row = share.first + index;
  if (call.activated != nullptr) {
    // The others' code is long, and would part what all kinds need in the instruction cache.
    value = call.activation == RowTask::Kind::kSilu ? activate(RowTask::Kind::kSilu, value)
                                                    : activate_apart(call.activation, value);
    if (call.paired) value *= finish_row(call.products[1], share, index, extras.second_bias, sums);
    call.activated[row] = value;
  }
  if (call.scaled != nullptr) {
    value *= call.factor;
    call.scaled[row] = value;
  }
  if (call.sum != nullptr) {
    value += extras.addend;
    call.sum[row] = value;
  }
  return value;
}

__device__ uint64_t key_of(float logit, int token) {
  if (isnan(logit)) return 0;
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // no -0.0
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | ~static_cast<uint32_t>(token);
}

// By all threads, with what each has found.
__device__ void keep_best(const TokenProducts& call, uint64_t key) {
  __shared__ uint64_t shared[kWarps];
  key = warp_max(key);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = key;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  key = warp_max(threadIdx.x < kWarps ? shared[threadIdx.x] : uint64_t{0});
  if (threadIdx.x != 0) return;
  call.best[blockIdx.x].key = key;
  call.host_best[blockIdx.x].key = key;
}

// N: numbers of the input that a thread takes at once. (Both in one kernel would leave the compiler
// too few registers to ask for all of a step's rows before it multiplies.)
template <int N>
__global__ void __launch_bounds__(kThreads, 1)
    token_products_kernel(const __grid_constant__ TokenProducts call) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ float shared[2 * kWarps];
  let_next_start();
  const int thread = static_cast<int>(threadIdx.x);
  const Share share = find_share(call);
  const Input input = input_of(call, memory);
  take_input<N>(call, input, shared, [&] { fetch_rows(call, share); });
  __syncthreads();
  __shared__ Extras extras[kThreads];
  if (thread < share.rows) fetch_extras(call, share, thread, extras[thread]);
  auto* sums = reinterpret_cast<float*>(memory + call.sums_at);
  multiply(call, share, input, sums);
  wait_for_copies();
  __syncthreads();
  uint64_t best = 0;
#pragma unroll 1
  for (int i = thread; i < share.rows; i += kThreads) {
    if (i >= kThreads) {
      fetch_extras(call, share, i, extras[thread]);
      wait_for_copies();
    }
    const float value = finish(call, share, i, extras[thread], sums);
    if (call.best != nullptr) best = max(best, key_of(value, share.first + i));
  }
  if (call.best != nullptr) keep_best(call, best);
}

template <int N>
void run(const TokenProducts& call, cudaStream_t stream) {
  static const bool ready = [] {
    const auto kernel = token_products_kernel<N>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostProductsShared);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    return true;
  }();
  static_cast<void>(ready);
  launch(token_products_kernel<N>, dim3(static_cast<unsigned>(call.blocks)), kThreads,
         static_cast<size_t>(call.shared_bytes), stream, call);
}

}  // namespace

void run_token_products(const TokenProducts& call, cudaStream_t stream) {
  if (call.wide)
    run<8>(call, stream);
  else
    run<4>(call, stream);
}

}  // namespace lockstep::exec::cuda
