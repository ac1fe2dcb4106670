// How the work of products.cu is shared among blocks and warps.
#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "exec/cuda/tokens/calls.h"
#include "exec/cuda/weights/planes.h"

namespace lockstep::exec::cuda {
namespace {

using Product = TokenProducts::Product;

constexpr int kWarp = 32;
// Bytes of a block's rows that are fetched at its start.
constexpr int64_t kEarlyBytes = 64 * 1024;

int64_t up(int64_t count, int64_t to) {
  return (count + to - 1) / to * to;
}

int64_t bytes_of_row(const Product& product) {
  return std::accumulate(std::begin(product.weight.row_bytes), std::end(product.weight.row_bytes),
                         int64_t{0});
}
int64_t rows_of_block(const Product& product) {
  return product.block_rows + (product.longer_blocks > 0 ? 1 : 0);
}

// Gives every product blocks so that the block with the most bytes has as few as can be.
void share_blocks(TokenProducts& call) {
  std::span<Product> products(call.products, static_cast<size_t>(call.count));
  std::vector<int> blocks(products.size(), call.paired ? call.blocks : 1);
  if (!call.paired)
    for (int left = call.blocks - call.count; left > 0; --left) {
      const auto most = [&](size_t i) {
        return (products[i].weight.rows + blocks[i] - 1) / blocks[i] * bytes_of_row(products[i]);
      };
      size_t chosen = 0;
      for (size_t i = 1; i < products.size(); ++i)
        if (most(i) > most(chosen)) chosen = i;
      ++blocks[chosen];
    }
  int first = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    Product& p = products[i];
    p.first_block = first;
    p.block_rows = static_cast<int>(p.weight.rows / blocks[i]);
    p.longer_blocks = static_cast<int>(p.weight.rows % blocks[i]);
    if (!call.paired) first += blocks[i];
  }
}

// How the warps of a block share the rows of a product, or of two with weights of one format: the
// way that takes the least time, in instructions of a warp. `pieces`: of a row, one for a lane at a
// time.
void share_rows(std::span<Product> products, int64_t pieces) {
  const bool codes = products[0].weight.scales != nullptr;
  const int64_t rows = rows_of_block(products[0]), steps = (pieces + kWarp - 1) / kWarp;
  constexpr double kTurnCost = 180;  // adding up, and the wait for the first numbers
  double best = 0;
  for (int rows_log = 0; rows_log <= (codes ? 2 : 3); ++rows_log)
    for (int64_t part_steps = 1; part_steps <= steps; ++part_steps) {
      const int64_t tile_rows = 1 << rows_log, parts = (steps + part_steps - 1) / part_steps;
      const int64_t tiles = (rows + tile_rows - 1) / tile_rows;
      const int64_t turns = up(tiles * std::ssize(products) * parts, kProductWarps) / kProductWarps;
      const double step_cost = static_cast<double>(tile_rows) * (codes ? 51 : 25) + 25;
      const double cost =
          static_cast<double>(turns) * (static_cast<double>(part_steps) * step_cost + kTurnCost);
      if (best > 0 && cost >= best) continue;
      best = cost;
      for (Product& p : products) {
        p.rows_log = rows_log;
        p.tiles = static_cast<int>(tiles);
        p.parts = static_cast<int>(parts);
        p.part_steps = static_cast<int>(part_steps);
        p.inverse_parts =
            parts == 1 ? 0 : static_cast<uint32_t>(((int64_t{1} << 32) + parts - 1) / parts);
      }
    }
}

}  // namespace

bool plan_products(TokenProducts& call, int multiprocessors) {
  if (call.columns % 4 != 0 || call.count > multiprocessors) return false;
  call.takes_codes = call.takes_floats = false;
  call.blocks = multiprocessors;
  std::span<Product> products(call.products, static_cast<size_t>(call.count));
  for (const Product& p : products) {
    (p.weight.scales != nullptr ? call.takes_codes : call.takes_floats) = true;
    // Vectors are counted so.
    if (p.weight.rows * p.weight.row_bytes[0] / 8 > INT32_MAX) return false;
  }
  int64_t bytes = 0;
  if (call.takes_codes)
    bytes = up(call.columns / kUnit * (2 * kUnit + sizeof(float) + sizeof(int2)), 128);
  call.floats_at = static_cast<int>(bytes);
  if (call.takes_floats) bytes += up((call.columns + 7) / 8 * 32, 128);
  call.sums_at = static_cast<int>(bytes);
  share_blocks(call);
  const bool alike = call.paired && products[0].weight.format == products[1].weight.format;
  int64_t sums = 0;  // of the block that has the most
  int64_t first_sum = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    Product& p = products[i];
    if (i == 0 || !alike)
      share_rows(products.subspan(i, alike ? 2 : 1),
                 p.weight.scales != nullptr ? call.columns / kUnit : p.weight.row_bytes[0] / 16);
    const int64_t rows = rows_of_block(p);
    p.early_rows =
        static_cast<int>(std::min(rows, kEarlyBytes / (call.paired ? 2 : 1) / bytes_of_row(p)));
    p.first_sum = static_cast<int>(first_sum);
    sums = std::max(sums, first_sum + rows * p.parts);
    if (call.paired) first_sum = sums;
  }
  bytes += sums * 4;
  call.shared_bytes = static_cast<int>(bytes);
  return bytes <= kMostProductsShared;
}

}  // namespace lockstep::exec::cuda
