// Exceptions end here: the standard library throws where there is no memory or no thread, and that
// is an error of the job at hand, not of the program.
#pragma once

#include <utility>

#include "base/result.h"

namespace lockstep {

// Short enough to lie within a string itself.
inline constexpr const char* kNoMemoryMessage = "out of memory";

// Says what the exception is that is being handled. Only for a catch block. Takes no memory where
// there is none.
Error caught_error() noexcept;

// What `function` returns (a Result), or the exception that it threw as an error.
template <class Function>
auto no_throw(Function&& function) noexcept -> decltype(function()) {
  try {
    return std::forward<Function>(function)();
  } catch (...) {
    return caught_error();
  }
}

}  // namespace lockstep
