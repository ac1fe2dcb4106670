#include "base/no_throw.h"

#include <exception>
#include <new>
#include <system_error>

namespace lockstep {

Error caught_error() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Error{kNoMemoryMessage};
  } catch (const std::exception& failure) {
    try {
      return Error{failure.what()};
    } catch (...) {
      return Error{kNoMemoryMessage};
    }
  } catch (...) {
    return Error{"unknown error"};
  }
}

}  // namespace lockstep
