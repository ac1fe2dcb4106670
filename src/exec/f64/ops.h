// The ops of exec/reference/ops.h, quickly: the same values but for the last digits, and the same
// bits for any number of rows and threads. What replays an op uses these; the plain ones are what
// they are held to.
#pragma once

#include "exec/f64/products.h"
#include "exec/reference/ops.h"

namespace lockstep::exec::f64 {

reference::Matrix evaluate(const op::What& what, std::span<const reference::Matrix* const> inputs,
                           int64_t width, const reference::Place& place, int threads,
                           reference::Scores* scores = nullptr,
                           Products& products = cpu_products());

}  // namespace lockstep::exec::f64
