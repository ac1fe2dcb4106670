#include "jinja/interpreter.h"
#include "jinja/library.h"

namespace lockstep::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  place_ = expression.place;
  const Deeper deeper(*this);
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.value;
    case ExpressionKind::kName:
      return evaluate_name(expression.name);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
      return evaluate_items(expression);
    case ExpressionKind::kDict:
      return evaluate_dict(expression);
    case ExpressionKind::kSlice:
      return evaluate_slice(expression);
    case ExpressionKind::kCall:
      return evaluate_call(expression);
    case ExpressionKind::kFilter:
      return evaluate_filter(expression, nullptr);
    case ExpressionKind::kCompare:
      return evaluate_compare(expression);
    case ExpressionKind::kConcat:
      return evaluate_concat(expression);
    default:
      return evaluate_operator(expression);
  }
}

// Nodes of a few operands, each evaluated only where it is needed.
Value Interpreter::evaluate_operator(const Expression& expression) {
  const auto& items = expression.items;
  Value first = evaluate(*items[0]);
  place_ = expression.place;
  switch (expression.kind) {
    case ExpressionKind::kAttribute:
      budget_.spend(Budget::kNodeCost);
      return get_attribute(first, expression.name);
    case ExpressionKind::kNot:
      return Value(!truthy(first));
    case ExpressionKind::kNegative:
      return negative(first);
    case ExpressionKind::kPositive:
      return positive(first);
    case ExpressionKind::kAnd:
      return truthy(first) ? evaluate(*items[1]) : first;
    case ExpressionKind::kOr:
      return truthy(first) ? first : evaluate(*items[1]);
    case ExpressionKind::kConditional:
      if (truthy(first)) return evaluate(*items[1]);
      return items[2] ? evaluate(*items[2]) : undefined("an 'if' without 'else' that was false");
    case ExpressionKind::kTest: {
      const Arguments arguments = evaluate_arguments(expression);
      place_ = expression.place;
      return Value(apply_test(expression.name, first, arguments, budget_));
    }
    default:
      break;
  }
  const Value second = evaluate(*items[1]);
  place_ = expression.place;
  if (expression.kind == ExpressionKind::kSubscript) return get_item(first, second, budget_);
  return arithmetic(expression.name, first, second, budget_);
}

Value Interpreter::evaluate_name(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    const auto found = scope->variables.find(name);
    if (found != scope->variables.end()) return found->second;
  }
  static constexpr std::string_view kGlobals[] = {"range", "namespace", "dict", "raise_exception",
                                                  "strftime_now"};
  for (const std::string_view global : kGlobals) {
    if (name != global) continue;
    return Value(
        std::make_shared<const Callable>(Callable{.kind = Callable::Kind::kGlobal, .name = name}));
  }
  budget_.spend(Budget::kNodeCost);
  return undefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::evaluate_items(const Expression& expression) {
  std::vector<Value> items;
  for (const auto& item : expression.items) {
    budget_.spend(Budget::kElementCost);
    items.push_back(evaluate(*item));
  }
  place_ = expression.place;
  const bool tuple = expression.kind == ExpressionKind::kTuple;
  return make_list(std::move(items), tuple ? ListKind::kTuple : ListKind::kList);
}

Value Interpreter::evaluate_dict(const Expression& expression) {
  DictBuilder builder(budget_);
  for (size_t i = 0; i < expression.items.size(); i += 2) {
    budget_.spend(4 * Budget::kElementCost);
    const Value key = evaluate(*expression.items[i]);
    Value value = evaluate(*expression.items[i + 1]);
    place_ = expression.place;
    builder.set(key, std::move(value));
  }
  return Value(builder.finish());
}

Value Interpreter::evaluate_slice(const Expression& expression) {
  const auto& items = expression.items;
  const Value subject = evaluate(*items[0]);
  const auto bound = [&](size_t index) -> std::optional<int64_t> {
    if (!items[index]) return std::nullopt;
    const Value value = evaluate(*items[index]);
    if (value.is<None>()) return std::nullopt;
    return integer_argument(value, "the bound of a slice");
  };
  SliceBounds bounds;
  bounds.start = bound(1);
  bounds.stop = bound(2);
  bounds.step = bound(3);
  place_ = expression.place;
  return get_slice(subject, bounds, budget_);
}

Arguments Interpreter::evaluate_arguments(const Expression& expression) {
  Arguments arguments;
  for (size_t i = 1; i < expression.items.size(); ++i) {
    arguments.positional.push_back(evaluate(*expression.items[i]));
  }
  for (const auto& [name, item] : expression.named) {
    arguments.named.emplace_back(name, evaluate(*item));
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expression& expression) {
  const Value callee = evaluate(*expression.items[0]);
  const Arguments arguments = evaluate_arguments(expression);
  place_ = expression.place;
  return call(callee, arguments);
}

// `subject` stands in for what a filter block collected.
Value Interpreter::evaluate_filter(const Expression& expression, const Value* subject) {
  const Deeper deeper(*this);
  const Expression* inner = expression.items[0].get();
  // In a filter block the chain starts with a filter that has no operand of its own.
  const Value value = !inner ? *subject
                      : subject && inner->kind == ExpressionKind::kFilter
                          ? evaluate_filter(*inner, subject)
                          : evaluate(*inner);
  const Arguments arguments = evaluate_arguments(expression);
  place_ = expression.place;
  return apply_filter(expression.name, value, arguments, budget_);
}

Value Interpreter::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.items[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.items[i + 1]);
    place_ = expression.place;
    if (!compare(expression.operators[i], left, right, budget_)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::evaluate_concat(const Expression& expression) {
  std::string text;
  for (const auto& item : expression.items) {
    const Value value = evaluate(*item);
    place_ = expression.place;
    text += to_text(value, budget_);
    budget_.spend(text.size());
  }
  return Value(std::move(text));
}

}  // namespace lockstep::jinja
