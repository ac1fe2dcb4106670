#include "exec/cuda/f64/products.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "exec/cuda/executor.h"
#include "exec/cuda/f64/calls.h"
#include "exec/cuda/shared/stream.h"

namespace lockstep::exec::cuda {
namespace {

using f64::EstimatedSums;
using f64::EstimateRows;
using f64::kEstimateBlock;

// Of what is in memory at a time, here and there.
constexpr int64_t kRowsBytes = 256 << 20;
constexpr int64_t kDecodedBytes = 128 << 20;
constexpr int64_t kResultBytes = 96 << 20;

// Memory that grows with what it has to hold.
template <Place P>
Result<std::byte*> room(Memory<P>& memory, int64_t bytes) {
  if (memory.size_bytes() < bytes) {
    memory = {};
    LS_TRY(memory, Memory<P>::allocate(bytes));
  }
  return memory.data();
}

int64_t summed_columns(int64_t columns) {
  return (columns + f64::kSummedSquares - 1) / f64::kSummedSquares;
}

// Where the rows of x, or the results of a part, lie in one piece of memory.
struct Places {
  int64_t product = 0;
  std::vector<int64_t> estimates;
  Layout layout;

  static Places of_rows(const f64::Task& task, int64_t rows) {
    Places out;
    if (task.x != nullptr)
      out.product = out.layout.place(rows * padded_columns(task.weight.columns) * 8);
    for (const f64::Estimate& each : task.estimates)
      out.estimates.push_back(out.layout.place(each.x->blocks * rows * kEstimateBlock * 4));
    return out;
  }
  static Places of_results(const f64::Task& task, int64_t rows, int64_t columns) {
    Places out;
    if (task.x != nullptr) out.product = out.layout.place(rows * columns * 8);
    for (const f64::Estimate& each : task.estimates)
      out.estimates.push_back(out.layout.place(rows * columns * 4 * (each.partial ? 3 : 1)));
    return out;
  }
  EstimatedSums sums(std::byte* base, size_t index, bool partial, int64_t numbers) const {
    auto* first = reinterpret_cast<float*>(base + estimates[index]);
    if (!partial) return {first};
    return {first, first + numbers, first + 2 * numbers};
  }
};

// A part of the weight on its way, and its results. Two of them take turns.
struct Slot {
  Stream stream;
  Event done;
  PinnedMemory sent;
  PinnedMemory results;
  DeviceMemory blocks;
  DeviceMemory decoded;
  DeviceMemory summed;
  DeviceMemory computed;
  int64_t first = 0;  // row of the weight
  int64_t count = 0;  // 0: nothing is under way
  Places places;
};

class CudaProducts : public f64::ProductDevice {
 public:
  Result<void> run(const f64::Task& task, int threads, const f64::Take& take) override {
    for (Slot& slot : slots_) {
      slot.count = 0;
      if (slot.stream != nullptr) continue;
      LS_TRY(slot.stream, Stream::create());
      LS_TRY(slot.done, Event::create());
    }
    const int64_t of_a_row = Places::of_rows(task, 1).layout.bytes();
    const int64_t rows = std::clamp<int64_t>(kRowsBytes / of_a_row, 1, task.rows());
    exact_ = task.x != nullptr && !task.squared && f64::fit_single_precision(*task.x, threads);
    for (int64_t first = 0; first < task.rows(); first += rows)
      LS_TRY_VOID(some_rows(task, first, std::min(rows, task.rows() - first), threads, take));
    return {};
  }

 private:
  Result<void> some_rows(const f64::Task& task, int64_t first_row, int64_t rows, int threads,
                         const f64::Take& take) {
    LS_TRY_VOID(send_rows(task, first_row, rows, threads));
    const int64_t of_a_result = Places::of_results(task, rows, 64).layout.bytes() / 64;
    const int64_t of_a_weight_row = padded_columns(task.weight.columns) * 4;
    int64_t count = std::min(kDecodedBytes / of_a_weight_row, kResultBytes / of_a_result);
    count = std::clamp<int64_t>(count / 64 * 64, 64, std::max<int64_t>(64, task.weight.rows));
    int turn = 0;
    for (int64_t first = 0; first < task.weight.rows; first += count, turn ^= 1) {
      LS_TRY_VOID(start(slots_[turn], task, first, std::min(count, task.weight.rows - first), rows,
                        threads));
      LS_TRY_VOID(finish(slots_[turn ^ 1], task, first_row, rows, threads, take));
    }
    return finish(slots_[turn ^ 1], task, first_row, rows, threads, take);
  }

  // Rows of x and of the estimates, filled up with zeros.
  Result<void> send_rows(const f64::Task& task, int64_t first, int64_t rows, int threads) {
    row_places_ = Places::of_rows(task, rows);
    const int64_t bytes = row_places_.layout.bytes();
    LS_TRY(std::byte * pinned, room(pinned_rows_, bytes));
    LS_TRY(std::byte * there, room(rows_, bytes));
    if (task.x != nullptr) {
      const int64_t columns = task.x->columns;
      const int64_t stride = padded_columns(columns);
      auto* out = reinterpret_cast<double*>(pinned + row_places_.product);
      parallel_rows(rows, columns, threads, [&](int64_t t) {
        std::copy_n(task.x->row(first + t), columns, out + t * stride);
        std::fill_n(out + t * stride + columns, stride - columns, 0.0);
      });
    }
    for (size_t i = 0; i < task.estimates.size(); ++i) {
      const EstimateRows& x = *task.estimates[i].x;
      auto* out = reinterpret_cast<float*>(pinned + row_places_.estimates[i]);
      parallel_rows(x.blocks, rows * kEstimateBlock, threads, [&](int64_t block) {
        std::copy_n(x.numbers.data() + (block * x.rows + first) * kEstimateBlock,
                    rows * kEstimateBlock, out + block * rows * kEstimateBlock);
      });
    }
    cudaStream_t stream = slots_[0].stream;
    LS_TRY_VOID(check(
        cudaMemcpyAsync(there, pinned, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync"));
    return check(cudaStreamSynchronize(stream), "sending rows");
  }

  Result<void> start(Slot& slot, const f64::Task& task, int64_t first, int64_t count, int64_t rows,
                     int threads) {
    const op::Weight& weight = task.weight;
    const int64_t bytes = count * weight.row_bytes();
    const int64_t columns = padded_columns(weight.columns);
    slot.places = Places::of_results(task, rows, count);
    const int64_t result_bytes = slot.places.layout.bytes();
    LS_TRY(std::byte * sent, room(slot.sent, bytes));
    LS_TRY(std::byte * blocks, room(slot.blocks, bytes));
    LS_TRY(std::byte * decoded, room(slot.decoded, count * columns * 4));
    LS_TRY(std::byte * computed, room(slot.computed, result_bytes));
    LS_TRY(std::byte * results, room(slot.results, result_bytes));
    parallel_for(
        count, std::max<int64_t>(1, (1 << 20) / weight.row_bytes()),
        [&](int64_t begin, int64_t end) {
          std::memcpy(sent + begin * weight.row_bytes(), weight.row(first + begin),
                      static_cast<size_t>((end - begin) * weight.row_bytes()));
        },
        threads);
    LS_TRY_VOID(check(cudaMemcpyAsync(blocks, sent, static_cast<size_t>(bytes),
                                      cudaMemcpyHostToDevice, slot.stream),
                      "cudaMemcpyAsync"));
    auto* w = reinterpret_cast<float*>(decoded);
    run_decode({.format = weight.format->format(),
                .blocks = blocks,
                .rows = count,
                .columns = weight.columns,
                .out = w},
               slot.stream);
    if (task.x != nullptr)
      run_double_product({.w = w,
                          .w_rows = count,
                          .x = rows_.as<double>(row_places_.product),
                          .x_rows = rows,
                          .columns = columns,
                          .exact = exact_,
                          .squared = task.squared,
                          .out = reinterpret_cast<double*>(computed + slot.places.product),
                          .out_stride = count},
                         slot.stream);
    for (size_t i = 0; i < task.estimates.size(); ++i)
      LS_TRY_VOID(estimate(slot, task, i, w, count, rows));
    LS_TRY_VOID(check(cudaGetLastError(), "starting kernels"));
    LS_TRY_VOID(check(cudaMemcpyAsync(results, computed, static_cast<size_t>(result_bytes),
                                      cudaMemcpyDeviceToHost, slot.stream),
                      "cudaMemcpyAsync"));
    LS_TRY_VOID(check(cudaEventRecord(slot.done, slot.stream), "cudaEventRecord"));
    slot.first = first;
    slot.count = count;
    return {};
  }

  Result<void> estimate(Slot& slot, const f64::Task& task, size_t index, const float* decoded,
                        int64_t count, int64_t rows) {
    const f64::Estimate& wanted = task.estimates[index];
    const float* w = decoded;
    if (wanted.factor == f64::Factor::kSumsOfSquares) {
      const int64_t columns = padded_columns(summed_columns(task.weight.columns));
      LS_TRY_VOID(room(slot.summed, count * columns * 4));
      w = slot.summed.as<float>();
      run_sums_of_squares(decoded, count, task.weight.columns, f64::kSummedSquares,
                          slot.summed.as<float>(), slot.stream);
    }
    run_estimate(
        {.w = w,
         .w_rows = count,
         .x = rows_.as<float>(row_places_.estimates[index]),
         .x_rows = rows,
         .blocks = wanted.x->blocks,
         .squared = wanted.factor == f64::Factor::kSquares,
         .out = slot.places.sums(slot.computed.data(), index, wanted.partial, rows * count),
         .out_stride = count},
        slot.stream);
    return {};
  }

  // Hands out the results of what is under way, if anything is.
  Result<void> finish(Slot& slot, const f64::Task& task, int64_t first_row, int64_t rows,
                      int threads, const f64::Take& take) {
    if (slot.count == 0) return {};
    LS_TRY_VOID(check(cudaEventSynchronize(slot.done), "products on the GPU"));
    const int64_t stride = std::exchange(slot.count, 0);
    std::byte* results = slot.results.data();
    // Few rows are cut, so that all threads have work.
    const int64_t cuts = std::clamp<int64_t>(2 * threads / rows, 1, (stride + 255) / 256);
    const int64_t width = (stride + cuts - 1) / cuts;
    parallel_for(
        rows * cuts, std::max<int64_t>(1, 20'000 / width),
        [&](int64_t begin, int64_t end) {
          std::vector<EstimatedSums> estimates(task.estimates.size());
          for (int64_t i = begin; i < end; ++i) {
            const int64_t t = i / cuts;
            const int64_t column = i % cuts * width;
            const int64_t columns = std::min(width, stride - column);
            if (columns <= 0) continue;
            const int64_t place = t * stride + column;
            for (size_t e = 0; e < estimates.size(); ++e) {
              const bool partial = task.estimates[e].partial;
              estimates[e] = slot.places.sums(results, e, partial, rows * stride);
              estimates[e].sum += place;
              if (!partial) continue;
              estimates[e].partial += place;
              estimates[e].partial_squares += place;
            }
            const auto* product =
                reinterpret_cast<const double*>(results + slot.places.product) + place;
            take({.first_row = first_row + t,
                  .rows = 1,
                  .first_column = slot.first + column,
                  .columns = columns,
                  .stride = stride,
                  .product = task.x != nullptr ? product : nullptr,
                  .estimates = estimates});
          }
        },
        threads);
    return {};
  }

  Slot slots_[2];
  PinnedMemory pinned_rows_;
  DeviceMemory rows_;
  Places row_places_;
  bool exact_ = false;
};

}  // namespace

Result<std::unique_ptr<f64::ProductDevice>> create_products() {
  LS_TRY_VOID(available());
  return std::make_unique<CudaProducts>();
}

}  // namespace lockstep::exec::cuda
