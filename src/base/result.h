// Result<T>: the outcome of anything that comes from outside (files, flags, requests).
// Our own mistakes are checks (check.h), never Results.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/check.h"

namespace lockstep {

// What is wrong, where, and what was expected, in one message for a person.
struct Error {
  std::string message;
};

template <class... Args>
Error error(fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format(format, std::forward<Args>(args)...)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  template <class U = T>
  requires(std::is_convertible_v<U, T> && !std::is_same_v<std::remove_cvref_t<U>, Error>)
      Result(U&& value)
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}
  Result(Error failure) : state_(std::in_place_index<1>, std::move(failure)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    LS_CHECK(ok(), "value() of a failed Result: {}", error().message);
    return std::get<0>(state_);
  }
  const T& value() const& { return const_cast<Result*>(this)->value(); }
  T&& value() && { return std::move(value()); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

// Success carries nothing: `return {};`.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error failure) : failure_(std::move(failure)) {}

  bool ok() const { return !failure_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *failure_; }

 private:
  std::optional<Error> failure_;
};

}  // namespace lockstep

#define LS_CONCAT_INNER(a, b) a##b
#define LS_CONCAT(a, b) LS_CONCAT_INNER(a, b)

// LS_TRY(auto file, File::open(path)): the value, or return the error from this function.
#define LS_TRY(declaration, expression) \
  LS_TRY_INNER(declaration, expression, LS_CONCAT(ls_result_, __LINE__))
#define LS_TRY_INNER(declaration, expression, result) \
  auto result = (expression);                         \
  if (!result.ok()) return result.error();            \
  declaration = std::move(result).value()

// The same for a Result<void>, or where the value is not needed.
#define LS_TRY_VOID(expression)                                                      \
  do {                                                                               \
    if (auto ls_outcome = (expression); !ls_outcome.ok()) return ls_outcome.error(); \
  } while (false)
