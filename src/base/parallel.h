// Work spread over the cores.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// The cores that this process may use (affinity respected).
int available_cores();

// Calls body(begin, end) for consecutive ranges that cover [0, count), on up to `threads` threads,
// and returns when all are done. Which values a body computes must not depend on the ranges.
// `grain` is the smallest range worth a thread. Where the system starts no more threads, fewer do
// the work. An exception of a body is thrown again here, when no body runs any more.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body,
                  int threads = available_cores());

// The same for the rows of a matrix: body(row), where a thread is worth some thousands of numbers.
void parallel_rows(int64_t rows, int64_t columns, int threads,
                   const std::function<void(int64_t row)>& body);

}  // namespace lockstep
