// Products of weights with one token's row. A block takes a share of the rows of all weights, and
// has them fetched to the cache before it may read its input: while it waits for the kernel before
// it, normalizes its input and makes codes of it (every block for itself), the memory is already at
// work. One kernel for all formats, so that its code stays in the instruction cache from launch to
// launch.
#include <algorithm>

#include "exec/cuda/activation.cuh"
#include "exec/cuda/block.cuh"
#include "exec/cuda/launch.cuh"
#include "exec/cuda/pipe.cuh"
#include "exec/cuda/token_calls.h"
#include "exec/cuda/unit.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = 768, kWarps = kThreads / kWarp;
constexpr int kMostRows = 4;  // that a warp takes at once
constexpr int kNumbers = 4;   // of the input, that a thread takes at once
constexpr int kPlanes = 4;

using Product = TokenProducts::Product;

// What a block does of a product.
struct Share {
  int first, rows;  // of the weight
  int first_tile, tiles;
};

// By the first warp, a lane a plane of a product: finds the block's shares, and has the rows of
// each warp's first tile fetched.
__device__ void find_shares(const TokenProducts& call, Share* shares) {
  static_assert(kMostProducts * kPlanes <= kWarp);
  const int lane = static_cast<int>(threadIdx.x);
  const int p = lane / kPlanes, plane = lane % kPlanes;
  int tiles = 0;
  if (p < call.count) {
    const Product& product = call.products[p];
    const WeightView& weight = product.weight;
    const int block = static_cast<int>(blockIdx.x);
    const int begin = block * call.block_items + min(block, call.longer_blocks);
    const int end = begin + call.block_items + (block < call.longer_blocks ? 1 : 0);
    const int all = static_cast<int>(weight.rows);
    const int first = min(max(begin - product.first_item, 0), all);
    const int rows = min(max(end - product.first_item, 0), all) - first;
    tiles = ((rows + (1 << product.rows_log) - 1) >> product.rows_log) << product.parts_log;
    if (plane == 0) {
      shares[p].first = first;
      shares[p].rows = rows;
      shares[p].tiles = tiles;
    }
    fetch_to_cache((plane == 0   ? weight.codes
                    : plane == 1 ? weight.extra
                    : plane == 2 ? weight.scales
                                 : weight.blocks) +
                       first * weight.row_bytes[plane],
                   min(rows, product.early_rows) * weight.row_bytes[plane]);
  }
  int before = 0;
#pragma unroll
  for (int i = 1; i < kMostProducts; ++i) {
    const int other = __shfl_up_sync(~0u, tiles, i * kPlanes);
    if (p >= i) before += other;
  }
  if (p < call.count && plane == 0) shares[p].first_tile = before;
}

// The input in shared memory. Codes: the bytes of a unit in two planes of 16 bytes for the high
// ones and two for the low ones; then scales and sums. Floats: two planes of four numbers.
struct Input {
  int4* high;  // [2][units]
  int4* low;
  float* scales;   // [units]
  int2* sums;      // [units]
  float4* floats;  // [2][columns / 8]
  int units, fours, eights;
};
__device__ Input input_of(const TokenProducts& call, unsigned char* memory) {
  Input out;
  out.units = static_cast<int>(call.columns) / kUnit;
  out.fours = (static_cast<int>(call.columns) + 3) / 4;
  out.eights = (out.fours + 1) / 2;
  out.high = reinterpret_cast<int4*>(memory);
  out.low = out.high + 2 * out.units;
  out.sums = reinterpret_cast<int2*>(out.low + 2 * out.units);
  out.scales = reinterpret_cast<float*>(out.sums + out.units);
  out.floats = reinterpret_cast<float4*>(memory + call.floats_at);
  return out;
}

__device__ void load_four(const float* from, int i, int count, float (&out)[kNumbers]) {
  if (count % kNumbers == 0) {
    const float4 four =
        i * kNumbers < count ? reinterpret_cast<const float4*>(from)[i] : make_float4(0, 0, 0, 0);
    out[0] = four.x;
    out[1] = four.y;
    out[2] = four.z;
    out[3] = four.w;
    return;
  }
#pragma unroll
  for (int k = 0; k < kNumbers; ++k)
    out[k] = i * kNumbers + k < count ? from[i * kNumbers + k] : 0.0f;
}

// Four numbers of eight neighbouring threads each are a unit; see prepare() in rows.cu. Added to a
// large number, the codes appear in its lowest bits.
__device__ void make_codes(const float (&y)[kNumbers], const Input& input, int i, bool there) {
  uint32_t largest_bits = 0;  // magnitudes are ordered like their bits, and nothing is above NaN
#pragma unroll
  for (const float value : y)
    largest_bits = max(largest_bits, __float_as_uint(value) & 0x7fffffffu);
#pragma unroll
  for (int step = 1; step < kUnit / kNumbers; step *= 2)
    largest_bits = max(largest_bits, __shfl_xor_sync(~0u, largest_bits, step));
  const float largest = __uint_as_float(largest_bits);
  constexpr float kMost = 32512;
  const bool finite = largest <= 3.0e38f;
  const float inverse = largest > 0 ? kMost * __frcp_rn(largest) : 0;
  const bool tame = finite && inverse <= 3.0e38f;
  constexpr float kLarge = 12582912;  // 1.5 * 2^23
  uint32_t bits[kNumbers];
#pragma unroll
  for (int k = 0; k < kNumbers; ++k)
    bits[k] = __float_as_uint(__fadd_rn(__fmul_rn(y[k], inverse), kLarge));
  uint32_t low = __byte_perm(__byte_perm(bits[0], bits[1], 0x0040),
                             __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
#pragma unroll
  for (uint32_t& word : bits) word += 128;
  uint32_t high = __byte_perm(__byte_perm(bits[0], bits[1], 0x0051),
                              __byte_perm(bits[2], bits[3], 0x0051), 0x5410);
  if (!tame) high = low = 0;
  constexpr int kOnes = 0x01010101;
  int sum = 256 * __dp4a(static_cast<int>(high), kOnes, 0) +
            __dp4a(static_cast<int>(low), kOnes, 0);  // of 16 columns, by four threads
  sum += __shfl_xor_sync(~0u, sum, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (!there) return;
  const int unit = i / 8, half = i / 4 % 2, part = i % 4;
  reinterpret_cast<uint32_t*>(input.high + half * input.units + unit)[part] = high;
  reinterpret_cast<uint32_t*>(input.low + half * input.units + unit)[part] = low;
  if (part == 0) reinterpret_cast<int*>(input.sums + unit)[half] = sum;
  if (i % 8 == 0)
    input.scales[unit] = !finite ? __int_as_float(0x7fc00000) : tame ? largest * (1 / kMost) : 0.0f;
}

// Like block_sum(), with one barrier: `shared` must not be in use. All warps add up alike.
__device__ float sum_of_block(float value, float* shared) {
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = shared[0];
#pragma unroll
  for (int i = 1; i < kWarps; ++i) sum += shared[i];
  return sum;
}

// Reads the input once the kernel before has written it.
__device__ void take_input(const TokenProducts& call, const Input& input, float* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int count = static_cast<int>(call.columns);
  const bool norms = call.norm_weight != nullptr;
  float weight[kNumbers] = {}, bias[kNumbers] = {}, kept[kNumbers];
  if (norms) load_four(call.norm_weight, thread, count, weight);
  if (call.norm_bias != nullptr) load_four(call.norm_bias, thread, count, bias);
  wait_for_inputs();
  load_four(call.x, thread, count, kept);
  // The numbers of the rounds after the first are read again when they are needed.
  const auto numbers = [&](int i, float(&out)[kNumbers]) {
    if (i == thread) {
#pragma unroll
      for (int k = 0; k < kNumbers; ++k) out[k] = kept[k];
    } else {
      load_four(call.x, i, count, out);
    }
  };
  float mean = 0, factor = 1;
  int sums_taken = 0;  // each with its own shared memory, so that one barrier will do
  if (norms) {
    const auto sum_of = [&](auto&& function) {
      float sum = 0;
      for (int i = thread; i < input.fours; i += kThreads) {
        float x[kNumbers];
        numbers(i, x);
#pragma unroll
        for (int k = 0; k < kNumbers; ++k)
          if (i * kNumbers + k < count) sum = function(x[k], sum);
      }
      return sum_of_block(sum, shared + kWarps * sums_taken++);
    };
    if (call.layer_norm)
      mean = sum_of([](float x, float sum) { return sum + x; }) / static_cast<float>(count);
    const float squares = sum_of([&](float x, float sum) { return fmaf(x - mean, x - mean, sum); });
    factor = 1.0f / sqrtf(squares / static_cast<float>(count) + call.epsilon);
  }
  // Whole warps, since eight threads make a unit.
  for (int first = thread / kWarp * kWarp; first < input.fours; first += kThreads) {
    const int i = first + thread % kWarp;
    const bool there = i < input.fours;
    float y[kNumbers];
    numbers(i, y);
    if (norms) {
      if (i != thread) {
        load_four(call.norm_weight, i, count, weight);
        if (call.norm_bias != nullptr) load_four(call.norm_bias, i, count, bias);
      }
#pragma unroll
      for (int k = 0; k < kNumbers; ++k) {
        y[k] = (y[k] - mean) * factor * weight[k];
        if (call.norm_bias != nullptr) y[k] += bias[k];
        if (i * kNumbers + k >= count)
          y[k] = 0;
        else if (blockIdx.x == 0)
          call.normed[i * kNumbers + k] = y[k];
      }
    }
    if (call.takes_floats && there)
      input.floats[i % 2 * input.eights + i / 2] = make_float4(y[0], y[1], y[2], y[3]);
    if (call.takes_codes) make_codes(y, input, i, there);
  }
}

// Some rows times the input, for this thread's columns. Rows past the last are read as the last.
template <quant::Format K, int R>
__device__ void multiply_codes(const WeightView& weight, const Input& input, int first, int last,
                               int column, int stride, float (&sums)[kMostRows]) {
  const int blocks = input.units / kUnitsOfBlock;
  for (int unit = column; unit < input.units; unit += stride) {
    Unit<kCodesOf<K>> codes[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = min(first + r, last);
      codes[r].template load<false>(weight, row * input.units + unit,
                                    row * blocks + unit / kUnitsOfBlock);
    }
    int32_t high[8], low[8];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int4 h = input.high[i * input.units + unit];
      const int4 l = input.low[i * input.units + unit];
      high[4 * i] = h.x;
      high[4 * i + 1] = h.y;
      high[4 * i + 2] = h.z;
      high[4 * i + 3] = h.w;
      low[4 * i] = l.x;
      low[4 * i + 1] = l.y;
      low[4 * i + 2] = l.z;
      low[4 * i + 3] = l.w;
    }
    const float scale = input.scales[unit];
    const int2 x_sums = input.sums[unit];
#pragma unroll
    for (int r = 0; r < R; ++r) sums[r] = codes[r].dot(high, low, scale, x_sums, sums[r]);
  }
}

template <class T, int R>
__device__ void multiply_floats(const WeightView& weight, const Input& input, int first, int last,
                                int column, int stride, float (&sums)[kMostRows]) {
  const int vectors = static_cast<int>(weight.row_bytes[0] / 16);
#pragma unroll 2
  for (int v = column; v < vectors; v += stride) {
    Vector<T> numbers[R];
#pragma unroll
    for (int r = 0; r < R; ++r) numbers[r].load(weight.codes, min(first + r, last) * vectors + v);
    float x[Vector<T>::kNumbers];
#pragma unroll
    for (int i = 0; i < Vector<T>::kNumbers / 4; ++i) {
      const int four = v * (Vector<T>::kNumbers / 4) + i;
      const float4 f = input.floats[four % 2 * input.eights + four / 2];
      x[4 * i] = f.x;
      x[4 * i + 1] = f.y;
      x[4 * i + 2] = f.z;
      x[4 * i + 3] = f.w;
    }
#pragma unroll
    for (int r = 0; r < R; ++r) sums[r] = numbers[r].dot(x, sums[r]);
  }
}

// Four sums over a warp: lane 8 * r gets that of row r.
__device__ float sum_rows(const float (&sums)[kMostRows], int lane) {
  const bool upper = lane & 16;
  float a = upper ? sums[2] : sums[0];
  float b = upper ? sums[3] : sums[1];
  a += __shfl_xor_sync(~0u, upper ? sums[0] : sums[2], 16);
  b += __shfl_xor_sync(~0u, upper ? sums[1] : sums[3], 16);
  const bool second = lane & 8;
  float sum = second ? b : a;
  sum += __shfl_xor_sync(~0u, second ? a : b, 8);
#pragma unroll
  for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

// A tile: some rows of a product, a part of their columns.
__device__ void multiply(const Product& product, const Share& share, int tile, const Input& input,
                         float* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int part = tile & ((1 << product.parts_log) - 1);
  const int index = (tile >> product.parts_log) << product.rows_log;
  const int first = share.first + index, last = share.first + share.rows - 1;
  const int column = part * kWarp + lane, stride = kWarp << product.parts_log;
  const WeightView& weight = product.weight;
  float each[kMostRows] = {};
  const auto with_rows = [&](auto&& body) {
    if (product.rows_log == 2)
      body.template operator()<4>();
    else if (product.rows_log == 1)
      body.template operator()<2>();
    else
      body.template operator()<1>();
  };
  const bool codes = visit_codes(weight.format, [&]<quant::Format K>() {
    with_rows(
        [&]<int R>() { multiply_codes<K, R>(weight, input, first, last, column, stride, each); });
  });
  if (!codes)
    visit_stored(weight.format, [&]<class T>() {
      with_rows([&]<int R>() {
        multiply_floats<T, R>(weight, input, first, last, column, stride, each);
      });
    });
  const float sum = sum_rows(each, lane);
  if (const int r = lane / 8; lane % 8 == 0 && r < 1 << product.rows_log && index + r < share.rows)
    sums[product.first_sum + ((index + r) << product.parts_log) + part] = sum;
}

// The sums of a product's row, its bias added, in its place.
__device__ float finish_row(const Product& product, const Share& share, int index, float bias,
                            const float* sums) {
  const float* parts = sums + product.first_sum + (index << product.parts_log);
  float out = parts[0];
  for (int i = 1; i < 1 << product.parts_log; ++i) out += parts[i];
  if (product.bias != nullptr) out += bias;
  product.out[share.first + index] = out;
  return out;
}

// A block's rows are numbered through all products, or through the pairs.
struct Item {
  int product = 0, index = 0;
  bool there = false;
};
__device__ Item find_item(const TokenProducts& call, const Share* shares, int i) {
  for (int p = 0; p < (call.paired ? 1 : call.count); ++p) {
    if (i < shares[p].rows) return {p, i, true};
    i -= shares[p].rows;
  }
  return {};
}

// What finishing an item reads, so that it can be read long before.
struct Extras {
  float bias = 0, addend = 0;
  __device__ void load_bias(const TokenProducts& call, const Share* shares, const Item& item) {
    const Product& product = call.products[item.product];
    if (item.there && product.bias != nullptr)
      bias = product.bias[shares[item.product].first + item.index];
  }
  __device__ void load_addend(const TokenProducts& call, const Share* shares, const Item& item) {
    if (item.there && call.sum != nullptr)
      addend = call.addend[shares[item.product].first + item.index];
  }
};

__device__ void finish(const TokenProducts& call, const Share* shares, const Item& item,
                       const Extras& extras, const float* sums) {
  const Share& share = shares[item.product];
  float value = finish_row(call.products[item.product], share, item.index, extras.bias, sums);
  const int row = share.first + item.index;
  if (call.activated != nullptr) {
    value = activate(call.activation, value);
    if (call.paired) {
      const Product& second = call.products[1];
      value *= finish_row(second, shares[1], item.index,
                          second.bias != nullptr ? second.bias[row] : 0.0f, sums);
    }
    call.activated[row] = value;
  }
  if (call.scaled != nullptr) {
    value *= call.factor;
    call.scaled[row] = value;
  }
  if (call.sum != nullptr) call.sum[row] = extras.addend + value;
}

__global__ void __launch_bounds__(kThreads, 1)
    token_products_kernel(const __grid_constant__ TokenProducts call) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Share shares[kMostProducts];
  __shared__ float shared[2 * kWarps];
  let_next_start();
  touch_parameters(call);
  if (threadIdx.x < kWarp) find_shares(call, shares);
  __syncthreads();
  Item item = find_item(call, shares, static_cast<int>(threadIdx.x));
  Extras extras;
  extras.load_bias(call, shares, item);
  const Input input = input_of(call, memory);
  take_input(call, input, shared);
  extras.load_addend(call, shares, item);
  __syncthreads();
  float* sums = reinterpret_cast<float*>(memory + call.sums_at);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  int tile = warp;
  for (int p = 0; p < call.count; ++p) {
    const Share& share = shares[p];
    for (; tile < share.first_tile + share.tiles; tile += kWarps) {
      multiply(call.products[p], share, tile - share.first_tile, input, sums);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); item.there;) {
    finish(call, shares, item, extras, sums);
    i += kThreads;
    item = find_item(call, shares, i);
    extras.load_bias(call, shares, item);
    extras.load_addend(call, shares, item);
  }
}

constexpr int kMostShared = 216 * 1024;
// Bytes of a multiprocessor's rows that are fetched ahead: all of them stay in the cache together.
constexpr int64_t kEarlyBytes = 128 * 1024;

int64_t up(int64_t bytes, int64_t to) {
  return (bytes + to - 1) / to * to;
}

// How the warps of a block share its rows of a product: the way that takes the least steps.
void share_rows(Product& product, int64_t rows, int64_t vectors) {
  double best = 0;
  Product chosen = product;
  for (int parts_log = 0; 1 << parts_log <= kWarps; ++parts_log)
    for (int rows_log = 0; 1 << rows_log <= kMostRows; ++rows_log) {
      const int tile_rows = 1 << rows_log;
      const auto rounds = [](int64_t count, int64_t at_once) {
        return static_cast<double>((count + at_once - 1) / at_once);
      };
      const auto tiles = static_cast<int64_t>(rounds(rows, tile_rows)) << parts_log;
      const double steps = rounds(vectors, kWarp << parts_log) * (tile_rows + 0.6) + 1.5;
      const double cost = rounds(tiles, kWarps) * steps;
      if (best > 0 && cost >= best) continue;
      best = cost;
      chosen.parts_log = parts_log;
      chosen.rows_log = rows_log;
    }
  product = chosen;
}

}  // namespace

bool plan_products(TokenProducts& call, int multiprocessors) {
  call.takes_codes = call.takes_floats = false;
  int64_t items = 0, row_bytes = 0;
  for (int i = 0; i < call.count; ++i) {
    Product& p = call.products[i];
    const WeightView& weight = p.weight;
    p.first_item = static_cast<int>(call.paired ? 0 : items);
    if (!(call.paired && i > 0)) items += weight.rows;
    (weight.scales != nullptr ? call.takes_codes : call.takes_floats) = true;
    if (weight.rows * weight.row_bytes[0] / 8 > INT32_MAX) return false;  // vectors are counted so
    for (const int64_t bytes : weight.row_bytes) row_bytes += bytes;
  }
  int64_t bytes = 0;
  if (call.takes_codes)
    bytes = up(call.columns / kUnit * (2 * kUnit + sizeof(float) + sizeof(int2)), 128);
  call.floats_at = static_cast<int>(bytes);
  if (call.takes_floats) bytes += up((call.columns + 7) / 8 * 32, 128);
  call.sums_at = static_cast<int>(bytes);
  call.blocks = multiprocessors;
  call.block_items = static_cast<int>(items / call.blocks);
  call.longer_blocks = static_cast<int>(items % call.blocks);
  int64_t sums = 0;
  for (int i = 0; i < call.count; ++i) {
    Product& p = call.products[i];
    const int64_t rows = std::min<int64_t>(call.block_items + 1, p.weight.rows);
    share_rows(p, rows,
               p.weight.scales != nullptr ? call.columns / kUnit : p.weight.row_bytes[0] / 16);
    p.early_rows = static_cast<int>(std::min(rows, kEarlyBytes / row_bytes));
    p.first_sum = static_cast<int>(sums);
    sums += rows << p.parts_log;
  }
  bytes += sums * 4;
  call.shared_bytes = static_cast<int>(bytes);
  return bytes <= kMostShared;
}

void run_token_products(const TokenProducts& call, cudaStream_t stream) {
  static const bool ready = [] {
    cudaFuncSetAttribute(token_products_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         kMostShared);
    cudaFuncSetAttribute(token_products_kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    return true;
  }();
  static_cast<void>(ready);
  launch(token_products_kernel, dim3(static_cast<unsigned>(call.blocks)), kThreads,
         static_cast<size_t>(call.shared_bytes), stream, call);
}

}  // namespace lockstep::exec::cuda
