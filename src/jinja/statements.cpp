#include <algorithm>

#include "jinja/interpreter.h"
#include "jinja/library.h"

namespace lockstep::jinja {

Interpreter::~Interpreter() {
  for (const auto& space : namespaces_) space->attributes.clear();
  for (const auto& scope : macro_scopes_) scope->variables.clear();
}

std::string Interpreter::run(const Body& body, const nlohmann::ordered_json& context) {
  std::string out;
  out_ = &out;
  try {
    if (!context.is_object()) fail("the context of a template must be an object");
    scope_ = std::make_shared<Scope>();
    for (const auto& [key, value] : context.items()) {
      scope_->variables[key] = from_json(value, budget_);
    }
    // What the template sets lies above the context, as its own block.
    const Inner inner(*this, scope_);
    execute(body);
  } catch (TemplateError& error) {
    if (error.place.line == 0) error.place = place_;
    throw;
  }
  return out;
}

void Interpreter::write(std::string_view text) {
  if (text.size() > limits_.output_bytes - std::min(limits_.output_bytes, out_->size())) {
    fail("the template writes more than {} bytes", limits_.output_bytes);
  }
  budget_.spend(text.size());
  *out_ += text;
}

std::string Interpreter::capture(const Body& body) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  const Inner inner(*this, scope_);
  execute(body);
  out_ = outer;  // after an error nobody writes any more
  return text;
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const auto& statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  place_ = statement.place;
  const Deeper deeper(*this);
  switch (statement.kind) {
    case StatementKind::kText:
      write(statement.text);
      return Flow::kOn;
    case StatementKind::kOutput: {
      const Value value = evaluate(*statement.expression);
      place_ = statement.place;
      write(to_text(value, budget_));
      return Flow::kOn;
    }
    case StatementKind::kIf:
      return execute_if(statement);
    case StatementKind::kFor:
      return execute_for(statement);
    case StatementKind::kSet:
    case StatementKind::kSetBlock:
      execute_set(statement);
      return Flow::kOn;
    case StatementKind::kFilterBlock: {
      const Value text(capture(statement.body));
      write(to_text(evaluate_filter(*statement.expression, &text), budget_));
      return Flow::kOn;
    }
    case StatementKind::kMacro:
      define_macro(statement);
      return Flow::kOn;
    case StatementKind::kWith:
      execute_with(statement);
      return Flow::kOn;
    case StatementKind::kScope: {
      const Inner inner(*this, scope_);
      return execute(statement.body);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::execute_if(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (!branch.condition || truthy(evaluate(*branch.condition))) return execute(branch.body);
  }
  return Flow::kOn;
}

// The items that pass the loop's own condition, as a list.
Value Interpreter::loop_items(const Statement& statement) {
  const Value source = evaluate(*statement.expression);
  place_ = statement.place;
  std::vector<Value> items = elements(source, budget_);
  if (!statement.condition) return make_list(std::move(items));
  std::vector<Value> kept;
  for (const Value& item : items) {
    const Inner inner(*this, scope_);
    assign(*statement.target, item);
    if (truthy(evaluate(*statement.condition))) kept.push_back(item);
  }
  return make_list(std::move(kept));
}

Interpreter::Flow Interpreter::execute_for(const Statement& statement) {
  const auto loop = std::make_shared<LoopState>();
  loop->items = loop_items(statement);
  const auto& items = loop->items.list()->items;
  if (items.empty()) {
    const Inner inner(*this, scope_);
    return execute(statement.else_body);
  }
  for (const Value& item : items) {
    budget_.spend(Budget::kNodeCost);
    const Inner inner(*this, scope_);
    place_ = statement.place;
    assign(*statement.target, item);
    scope_->variables["loop"] = Value(loop);
    if (execute(statement.body) == Flow::kBreak) break;
    ++loop->index;
  }
  return Flow::kOn;
}

void Interpreter::execute_set(const Statement& statement) {
  Value value;
  if (statement.kind == StatementKind::kSet) {
    value = evaluate(*statement.expression);
  } else {
    value = Value(capture(statement.body));
    if (statement.expression) value = evaluate_filter(*statement.expression, &value);
  }
  place_ = statement.place;
  assign(*statement.target, value);
}

void Interpreter::define_macro(const Statement& statement) {
  budget_.spend(12 * Budget::kNodeCost);  // its scope stays until the end
  macro_scopes_.push_back(scope_);
  scope_->variables[statement.text] =
      Value(std::make_shared<const Callable>(Callable{.kind = Callable::Kind::kMacro,
                                                      .name = statement.text,
                                                      .receiver = {},
                                                      .macro = &statement,
                                                      .scope = scope_}));
}

void Interpreter::execute_with(const Statement& statement) {
  std::vector<Value> values;  // all of them are computed before any is seen
  for (const auto& [target, expression] : statement.parameters) {
    values.push_back(evaluate(*expression));
  }
  const Inner inner(*this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(*statement.parameters[i].first, values[i]);
  execute(statement.body);
}

void Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::kName) {
    scope_->variables[target.name] = value;
    return;
  }
  if (target.kind == ExpressionKind::kAttribute) {
    const Value object = evaluate(*target.items[0]);
    place_ = target.place;
    const auto* space = object.as<std::shared_ptr<Namespace>>();
    if (!space) fail("attributes can be set on a namespace only, not on a {}", type_name(object));
    (*space)->attributes[target.name] = value;
    return;
  }
  const std::vector<Value> items = elements(value, budget_);
  if (items.size() != target.items.size()) {
    fail("{} values cannot be assigned to {} names", items.size(), target.items.size());
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.items[i], items[i]);
}

}  // namespace lockstep::jinja
