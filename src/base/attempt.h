// For threads and callers that no exception may reach: what a piece of work throws is its error.
#pragma once

#include <exception>
#include <new>

#include "base/result.h"

namespace lockstep {

// What `body` returns, a Result<void>, or why it threw. Takes no memory itself where there is none.
template <class Body>
Result<void> attempt(const Body& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error{"out of memory"};  // short enough to lie in the string itself
  } catch (const std::exception& problem) {
    try {
      return Error{problem.what()};
    } catch (...) {
      return Error{"out of memory"};
    }
  } catch (...) {
    return Error{"it failed"};
  }
}

}  // namespace lockstep
