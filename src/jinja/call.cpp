// Calls of macros, methods and the functions that every template has.
#include <algorithm>
#include <array>
#include <ctime>

#include "jinja/interpreter.h"
#include "jinja/library.h"

namespace lockstep::jinja {

namespace {

Value format_time(const Arguments& arguments) {
  check_arguments(arguments, "strftime_now()", {"format"}, 1);
  const std::string& format = text_argument(*arguments.find(0, "format"), "the format of a time");
  if (format.empty()) return Value("");
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  std::array<char, 1024> buffer;
  const size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &local);
  if (length == 0) fail("strftime_now() with a format that gives no text or too much");
  return Value(std::string(buffer.data(), length));
}

Value make_dict(const Arguments& arguments, Budget& budget) {
  DictBuilder builder(budget);
  if (arguments.positional.size() > 1) fail("dict() takes one positional argument at most");
  if (!arguments.positional.empty()) {
    const Dict* source = arguments.positional[0].dict();
    if (!source) fail("dict() of a {} is not supported", type_name(arguments.positional[0]));
    for (const auto& [key, value] : source->items) builder.set(key, value);
  }
  for (const auto& [name, value] : arguments.named) builder.set(Value(name), value);
  return Value(builder.finish());
}

}  // namespace

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is<Undefined>()) fail_undefined(callee);
  const auto* callable = callee.as<std::shared_ptr<const Callable>>();
  if (!callable) fail("a {} cannot be called", type_name(callee));
  switch ((*callable)->kind) {
    case Callable::Kind::kMacro:
      return call_macro(**callable, arguments);
    case Callable::Kind::kMethod:
      return call_method((*callable)->receiver, (*callable)->name, arguments, budget_);
    case Callable::Kind::kGlobal:
      break;
  }
  return call_global((*callable)->name, arguments);
}

Value Interpreter::call_macro(const Callable& callable, const Arguments& arguments) {
  const auto& parameters = callable.macro->parameters;
  if (arguments.positional.size() > parameters.size()) {
    fail("the macro '{}' takes {} argument(s), {} given", callable.name, parameters.size(),
         arguments.positional.size());
  }
  for (const auto& argument : arguments.named) {
    const std::string& name = argument.first;
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& item) { return item.first->name == name; });
    if (found == parameters.end()) {
      fail("the macro '{}' takes no argument '{}'", callable.name, name);
    }
    if (std::cmp_less(found - parameters.begin(), arguments.positional.size())) {
      fail("the macro '{}' got its argument '{}' twice", callable.name, name);
    }
  }
  const Inner inner(*this, callable.scope);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [target, fallback] = parameters[i];
    if (const Value* given = arguments.find(i, target->name)) {
      scope_->variables[target->name] = *given;
    } else if (fallback) {
      Value value = evaluate(*fallback);
      scope_->variables[target->name] = std::move(value);
    } else {
      scope_->variables[target->name] =
          undefined(fmt::format("parameter '{}' was not provided", target->name));
    }
  }
  return Value(capture(callable.macro->body));
}

Value Interpreter::call_global(const std::string& name, const Arguments& arguments) {
  if (name == "namespace") return make_namespace(arguments);
  if (name == "range") return make_range(arguments);
  if (name == "dict") {
    budget_.spend(arguments.named.size() * 4 * Budget::kElementCost);
    if (!arguments.positional.empty() && arguments.positional[0].dict()) {
      budget_.spend(arguments.positional[0].dict()->items.size() * 4 * Budget::kElementCost);
    }
    return make_dict(arguments, budget_);
  }
  if (name == "strftime_now") {
    budget_.spend(64 * Budget::kNodeCost);
    return format_time(arguments);
  }
  check_arguments(arguments, "raise_exception()", {"message"}, 1);
  throw TemplateError{to_text(*arguments.find(0, "message"), budget_)};
}

Value Interpreter::make_namespace(const Arguments& arguments) {
  budget_.spend(8 * Budget::kElementCost);
  const Value source = make_dict(arguments, budget_);
  auto space = std::make_shared<Namespace>();
  for (const auto& [key, value] : source.dict()->items) {
    budget_.spend(4 * Budget::kElementCost);
    space->attributes[text_argument(key, "the name of an attribute")] = value;
  }
  namespaces_.push_back(space);
  return Value(std::move(space));
}

Value Interpreter::make_range(const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) {
    fail("range() takes 1 to 3 integers");
  }
  const auto integer = [&](size_t i) { return integer_argument(given[i], "what range() gets"); };
  const int64_t start = given.size() > 1 ? integer(0) : 0;
  const int64_t stop = integer(given.size() > 1 ? 1 : 0);
  const int64_t step = given.size() > 2 ? integer(2) : 1;
  if (step == 0) fail("range() with a step of zero");
  constexpr size_t kMaxRange = 100000;  // the limit of Jinja's sandbox
  std::vector<Value> items;
  for (int64_t i = start; step < 0 ? i > stop : i < stop;) {
    if (items.size() >= kMaxRange) fail("range() of more than {} integers", kMaxRange);
    budget_.spend(Budget::kElementCost);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_list(std::move(items), ListKind::kRange);
}

}  // namespace lockstep::jinja
