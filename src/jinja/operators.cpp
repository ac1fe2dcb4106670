// Arithmetic and comparison with Python's meaning.
#include <cmath>

#include "jinja/library.h"

namespace lockstep::jinja {

namespace {

std::optional<int64_t> as_integer(const Value& value) {
  if (const int64_t* number = value.as<int64_t>()) return *number;
  if (const bool* flag = value.as<bool>()) return int64_t{*flag};
  return std::nullopt;
}

std::optional<double> as_real(const Value& value) {
  if (const double* number = value.as<double>()) return *number;
  if (const auto number = as_integer(value)) return static_cast<double>(*number);
  return std::nullopt;
}

[[noreturn]] void fail_large() {
  fail("integers beyond 64 bits are not supported");
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0 to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) fail_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_large();
  }
  return Value(result);
}

// Both rounded towards minus infinity.
Value floor_divide(int64_t a, int64_t b, bool remainder) {
  if (b == 0) fail("division by zero");
  if (b == -1) {
    if (remainder) return Value(int64_t{0});
    if (a == INT64_MIN) fail_large();
    return Value(-a);
  }
  int64_t quotient = a / b;
  int64_t rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return Value(remainder ? rest : quotient);
}

Value integer_arithmetic(std::string_view symbol, int64_t a, int64_t b) {
  int64_t result = 0;
  if (symbol == "+"   ? __builtin_add_overflow(a, b, &result)
      : symbol == "-" ? __builtin_sub_overflow(a, b, &result)
      : symbol == "*" ? __builtin_mul_overflow(a, b, &result)
                      : false) {
    fail_large();
  }
  if (symbol == "/") {
    if (b == 0) fail("division by zero");
    return Value(static_cast<double>(a) / static_cast<double>(b));
  }
  if (symbol == "//" || symbol == "%") return floor_divide(a, b, symbol == "%");
  if (symbol == "**") return power(a, b);
  return Value(result);
}

Value real_arithmetic(std::string_view symbol, double a, double b) {
  if (symbol == "+") return Value(a + b);
  if (symbol == "-") return Value(a - b);
  if (symbol == "*") return Value(a * b);
  if (symbol == "**") {
    const double result = std::pow(a, b);
    if ((a == 0 && b < 0) || (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) ||
        (std::isinf(result) && std::isfinite(a) && std::isfinite(b))) {
      fail("the result of '**' is no real number");
    }
    return Value(result);
  }
  if (b == 0) fail("division by zero");
  if (symbol == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (symbol == "%") return Value(rest == 0 ? std::copysign(0.0, b) : rest);
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1;
  return Value(quotient == 0 ? std::copysign(0.0, a / b) : whole);
}

Value repeat(const Value& sequence, int64_t times, Budget& budget) {
  const uint64_t count = times < 0 ? 0 : static_cast<uint64_t>(times);
  const auto charge = [&](uint64_t unit) {
    if (unit != 0 && count > UINT64_MAX / unit) fail("a repetition without bounds");
    budget.spend(unit * count);
  };
  if (const std::string* text = sequence.text()) {
    charge(text->size());
    std::string result;
    result.reserve(text->size() * count);
    for (uint64_t i = 0; i < count && !text->empty(); ++i) result += *text;
    return Value(std::move(result));
  }
  const List& list = *sequence.list();
  charge(list.items.size() * Budget::kElementCost);
  std::vector<Value> items;
  items.reserve(list.items.size() * count);
  for (uint64_t i = 0; i < count && !list.items.empty(); ++i) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return make_list(std::move(items), list.kind);
}

bool repeatable(const Value& value) {
  return value.text() || (value.list() && (value.list()->kind == ListKind::kList ||
                                           value.list()->kind == ListKind::kTuple));
}

}  // namespace

Value negative(const Value& value) {
  if (const auto number = as_integer(value)) return integer_arithmetic("-", 0, *number);
  if (const double* number = value.as<double>()) return Value(-*number);
  if (value.is<Undefined>()) fail_undefined(value);
  fail("'-' before a {}", type_name(value));
}

Value positive(const Value& value) {
  if (const auto number = as_integer(value)) return Value(*number);
  if (value.is<double>()) return value;
  if (value.is<Undefined>()) fail_undefined(value);
  fail("'+' before a {}", type_name(value));
}

Value arithmetic(std::string_view symbol, const Value& left, const Value& right, Budget& budget) {
  if (left.is<Undefined>()) fail_undefined(left);
  if (symbol == "%" && left.text()) return Value(format_percent(*left.text(), right, budget));
  if (right.is<Undefined>()) fail_undefined(right);
  const auto a = as_integer(left);
  const auto b = as_integer(right);
  if (a && b) return integer_arithmetic(symbol, *a, *b);
  const auto x = as_real(left);
  const auto y = as_real(right);
  if (x && y) return real_arithmetic(symbol, *x, *y);
  if (symbol == "+" && left.text() && right.text()) {
    budget.spend(left.text()->size() + right.text()->size());
    return Value(*left.text() + *right.text());
  }
  if (symbol == "+" && left.list() && right.list() && repeatable(left) && repeatable(right) &&
      left.list()->kind == right.list()->kind) {
    std::vector<Value> items = left.list()->items;
    const auto& more = right.list()->items;
    budget.spend((items.size() + more.size()) * Budget::kElementCost);
    items.insert(items.end(), more.begin(), more.end());
    return make_list(std::move(items), left.list()->kind);
  }
  if (symbol == "*" && repeatable(left) && b) return repeat(left, *b, budget);
  if (symbol == "*" && repeatable(right) && a) return repeat(right, *a, budget);
  fail("'{}' between a {} and a {}", symbol, type_name(left), type_name(right));
}

bool compare(std::string_view symbol, const Value& left, const Value& right, Budget& budget) {
  if (symbol == "==") return equal(left, right, budget);
  if (symbol == "!=") return !equal(left, right, budget);
  if (symbol == "in") return contains(right, left, budget);
  if (symbol == "not in") return !contains(right, left, budget);
  const int sign = order(left, right, budget);
  if (symbol == "<") return sign == -1;
  if (symbol == "<=") return sign == -1 || sign == 0;
  if (symbol == ">") return sign == 1;
  return sign == 1 || sign == 0;
}

}  // namespace lockstep::jinja
