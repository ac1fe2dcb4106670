#include "hub/reorder.h"

#include <algorithm>
#include <cstring>

#include <fmt/ranges.h>

namespace lockstep::hub {
namespace {

// A tensor as equal matrices one after another. A vector is one column.
struct Matrices {
  int64_t count = 1, rows = 1, columns = 1;

  int64_t size() const { return rows * columns; }
};

Matrices matrices_of(const std::vector<int64_t>& shape, bool last_are_rows) {
  Matrices out;
  const size_t behind = last_are_rows ? 1 : 2;  // dimensions that a matrix has
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i + behind < shape.size())
      out.count *= shape[i];
    else if (i + behind == shape.size())
      out.rows = shape[i];
    else
      out.columns = shape[i];
  }
  return out;
}

constexpr std::string_view kTwoInRows = "an even number of rows: two matrices in one";

Error wrong_shape(const std::vector<int64_t>& shape, std::string_view expected) {
  return error("found shape [{}], expected {}", fmt::join(shape, ", "), expected);
}

Order as_it_is(const std::vector<int64_t>& shape) {
  int64_t numbers = 1;
  for (const int64_t extent : shape) numbers *= extent;
  return {{1, 1, 1, numbers}, {0, 0, 0, 1}};
}

// Rows 2i and 2i + 1 of a head come from its rows i and i + half.
Result<Reordered> paired(const std::vector<int64_t>& shape, int64_t heads) {
  const int64_t rows = shape[0], columns = matrices_of(shape, shape.size() == 1).columns;
  if (rows % (2 * heads) != 0)
    return error("found {} rows, expected an even number for each of {} heads", rows, heads);
  const int64_t half = rows / heads / 2;
  return Reordered{shape,
                   {{heads, half, 2, columns}, {2 * half * columns, columns, half * columns, 1}}};
}

// Of each matrix every second row, or every second column as a row, from the given one on.
Order alternate_rows(const Matrices& in, int64_t first) {
  return {{in.count, in.rows / 2, 1, in.columns},
          {in.size(), 2 * in.columns, 0, 1},
          first * in.columns};
}
Order alternate_columns(const Matrices& in, int64_t first) {
  return {{in.count, in.columns / 2, 1, in.rows}, {in.size(), 2, 0, in.columns}, first};
}

// Keys and values of all heads stand head by head in one weight. That of keys is transposed.
Result<Reordered> part_of_heads(const std::vector<int64_t>& shape, bool values,
                                const Config& config) {
  const int64_t keys = config.still_size, size = keys + config.value_size;
  if (shape.size() != 2 || shape[0] != config.heads * size)
    return wrong_shape(shape,
                       fmt::format("{} rows: {} of keys and {} of values for each of {} "
                                   "heads",
                                   config.heads * size, keys, config.value_size, config.heads));
  const int64_t columns = shape[1];
  if (values)
    return Reordered{{config.heads, config.value_size, columns},
                     {{config.heads, config.value_size, 1, columns},
                      {size * columns, columns, 0, 1},
                      keys * columns}};
  return Reordered{{config.heads, columns, keys},
                   {{config.heads, columns, 1, keys}, {size * columns, 1, 0, columns}}};
}

}  // namespace

Result<Reordered> reorder(Change change, const std::vector<int64_t>& shape, std::string_view name,
                          const Config& config) {
  const bool bias = name.ends_with(".bias");
  const Matrices in = matrices_of(shape, bias);
  const bool matrix = shape.size() >= 2;
  switch (change) {
    case Change::kNone:
    case Change::kAddOne:
      break;
    case Change::kPairHeads:
      return paired(shape, config.heads);
    case Change::kPairKvHeads:
      return paired(shape, config.kv_heads);
    case Change::kTranspose: {
      if (!matrix) break;
      Reordered out{shape, {{in.count, in.columns, 1, in.rows}, {in.size(), 1, 0, in.columns}}};
      std::swap(out.shape[shape.size() - 2], out.shape[shape.size() - 1]);
      return out;
    }
    case Change::kFirstHalf:
    case Change::kSecondHalf: {
      if (!matrix || in.rows % 2 != 0) return wrong_shape(shape, kTwoInRows);
      Reordered out{shape, {{in.count, in.rows / 2, 1, in.columns}, {in.size(), in.columns, 0, 1}}};
      out.shape[shape.size() - 2] = in.rows / 2;
      if (change == Change::kSecondHalf) out.order.first = in.size() / 2;
      return out;
    }
    case Change::kEvenRows:
    case Change::kOddRows: {
      if (!matrix || in.rows % 2 != 0) return wrong_shape(shape, kTwoInRows);
      Reordered out{shape, alternate_rows(in, change == Change::kOddRows ? 1 : 0)};
      out.shape[shape.size() - (bias ? 1 : 2)] = in.rows / 2;
      return out;
    }
    case Change::kTransposeEven:
    case Change::kTransposeOdd: {
      if (!matrix || in.columns % 2 != 0)
        return wrong_shape(shape, "an even number of columns: two matrices in one");
      Reordered out{shape, alternate_columns(in, change == Change::kTransposeOdd ? 1 : 0)};
      out.shape[shape.size() - 2] = in.columns / 2;
      out.shape[shape.size() - 1] = in.rows;
      return out;
    }
    case Change::kKeysOfHeads:
    case Change::kValuesOfHeads:
      return part_of_heads(shape, change == Change::kValuesOfHeads, config);
  }
  return Reordered{shape, as_it_is(shape)};
}

void copy_in_order(const std::byte* from, const Order& order, int64_t width, std::byte* out) {
  const auto& steps = order.steps;
  const int64_t matrices = order.extents[0], rows = order.extents[1];
  const int64_t inner = order.extents[2], columns = order.extents[3];
  const auto copy = [&](int64_t i, int64_t j, int64_t k, int64_t l, int64_t numbers) {
    const int64_t source = order.first + i * steps[0] + j * steps[1] + k * steps[2] + l * steps[3];
    std::memcpy(out + (((i * rows + j) * inner + k) * columns + l) * width, from + source * width,
                static_cast<size_t>(numbers * width));
  };
  // Columns of the source are read in tiles, so that both sides stay in the cache.
  const int64_t tile = steps[3] == 1 ? rows : 64;
  for (int64_t i = 0; i < matrices; ++i)
    for (int64_t first_row = 0; first_row < rows; first_row += tile)
      for (int64_t first = 0; first < columns; first += steps[3] == 1 ? columns : tile)
        for (int64_t j = first_row; j < std::min(first_row + tile, rows); ++j)
          for (int64_t k = 0; k < inner; ++k) {
            if (steps[3] == 1) {
              copy(i, j, k, 0, columns);
              continue;
            }
            for (int64_t l = first; l < std::min(first + tile, columns); ++l) copy(i, j, k, l, 1);
          }
}

}  // namespace lockstep::hub
