// LS_CHECK(condition, "format", args...): our own bugs end the program with a message and a place.
// Input from outside never reaches one: it gets a Result (result.h).
#pragma once

#include <string>

#include <fmt/format.h>

namespace lockstep {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace lockstep

#define LS_CHECK(condition, ...)                                                             \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::lockstep::check_failed(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
  } while (false)
