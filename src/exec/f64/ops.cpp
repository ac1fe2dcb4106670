#include "exec/f64/ops.h"

#include <algorithm>
#include <limits>

#include "base/parallel.h"
#include "exec/reference/experts.h"
#include "quant/decode.h"

namespace lockstep::exec::f64 {
namespace {

using reference::Place;
using Inputs = std::span<const Matrix* const>;

constexpr int64_t kNumbersWorthAThread = 1 << 14;

Matrix linear_rows(const op::Linear& linear, const Matrix& x, int threads, Products& products) {
  Matrix out = multiply(linear.weight, x, threads, products);
  if (!linear.bias) return out;
  std::vector<float> bias(static_cast<size_t>(out.columns));
  quant::decode(linear.bias->format->format(), linear.bias->row(0), out.columns, bias.data());
  for (int64_t t = 0; t < out.rows; ++t)
    for (int64_t i = 0; i < out.columns; ++i)
      out.row(t)[i] += static_cast<double>(bias[static_cast<size_t>(i)]);
  return out;
}

Matrix expert_rows(const op::ExpertLinear& all, Inputs inputs, int64_t width, int threads,
                   Products& products) {
  Matrix out(inputs[0]->rows, width);
  std::ranges::fill(out.values, std::numeric_limits<double>::quiet_NaN());
  reference::for_each_expert(
      all, *inputs[1], [&](const op::Linear& linear, std::span<const op::Slot> slots) {
        const Matrix x = reference::rows_of_slots(*inputs[0], linear.weight.columns, slots);
        reference::put_rows_of_slots(linear_rows(linear, x, threads, products), slots, out);
      });
  return out;
}

Matrix some_rows(const Matrix& matrix, int64_t begin, int64_t end) {
  Matrix out(end - begin, matrix.columns);
  std::copy(matrix.row(begin), matrix.row(end), out.values.begin());
  return out;
}

// Ops whose rows have nothing to do with each other: each thread takes some, by the plain code.
Matrix row_by_row(const op::What& what, Inputs inputs, int64_t width, const Place& place,
                  int threads) {
  const int64_t rows = inputs.empty() ? static_cast<int64_t>(place.tokens.size()) : inputs[0]->rows;
  // The last ops of a program may get fewer rows than there are tokens; none of those needs to know
  // which.
  const bool placed = rows == static_cast<int64_t>(place.positions.size());
  Matrix out(rows, width);
  const auto some = [&](int64_t begin, int64_t end) {
    std::vector<Matrix> parts;
    std::vector<const Matrix*> pointers;
    for (const Matrix* input : inputs) parts.push_back(some_rows(*input, begin, end));
    for (const Matrix& part : parts) pointers.push_back(&part);
    const auto first = static_cast<size_t>(begin);
    const auto count = static_cast<size_t>(end - begin);
    const Place here =
        placed ? Place{place.tokens.subspan(first, count), place.positions.subspan(first, count)}
               : place;
    const Matrix part = reference::evaluate(what, pointers, width, here, 1);
    std::ranges::copy(part.values, out.row(begin));
  };
  parallel_for(rows, std::max<int64_t>(1, kNumbersWorthAThread / width), some, threads);
  return out;
}

}  // namespace

Matrix evaluate(const op::What& what, Inputs inputs, int64_t width, const Place& place, int threads,
                reference::Scores* scores, Products& products) {
  if (const auto* linear = std::get_if<op::Linear>(&what))
    return linear_rows(*linear, *inputs[0], threads, products);
  if (const auto* experts = std::get_if<op::ExpertLinear>(&what))
    return expert_rows(*experts, inputs, width, threads, products);
  if (std::holds_alternative<op::Attention>(what))
    return reference::evaluate(what, inputs, width, place, threads, scores);
  return row_by_row(what, inputs, width, place, threads);
}

}  // namespace lockstep::exec::f64
