// Runs a parsed template over a context.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "jinja/ast.h"
#include "jinja/callable.h"

namespace lockstep::jinja {

struct Limits {
  uint64_t work = uint64_t{1} << 24;  // units of Budget: at most about 50 ms and 64 MB
  size_t output_bytes = size_t{1} << 20;
  int32_t recursion = 1000;  // nodes being evaluated inside of each other
};

class Interpreter {
 public:
  explicit Interpreter(const Limits& limits) : limits_(limits), budget_(limits.work) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws TemplateError. `context` must be an object.
  std::string run(const Body& body, const nlohmann::ordered_json& context);

 private:
  enum class Flow { kOn, kBreak, kContinue };
  struct Deeper;  // one more level of recursion
  struct Inner;   // a scope of its own

  // statements.cpp
  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_if(const Statement& statement);
  Flow execute_for(const Statement& statement);
  Value loop_items(const Statement& statement);
  void execute_set(const Statement& statement);
  void define_macro(const Statement& statement);
  void execute_with(const Statement& statement);
  void write(std::string_view text);
  std::string capture(const Body& body);
  void assign(const Expression& target, const Value& value);

  // evaluate.cpp
  Value evaluate(const Expression& expression);
  Value evaluate_name(const std::string& name);
  Value evaluate_items(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Value evaluate_call(const Expression& expression);
  Value evaluate_filter(const Expression& expression, const Value* subject);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Value evaluate_operator(const Expression& expression);
  Arguments evaluate_arguments(const Expression& expression);

  Value call(const Value& callee, const Arguments& arguments);
  Value call_macro(const Callable& callable, const Arguments& arguments);
  Value call_global(const std::string& name, const Arguments& arguments);
  Value make_namespace(const Arguments& arguments);
  Value make_range(const Arguments& arguments);

  Limits limits_;
  Budget budget_;
  Place place_;  // of the node that runs, for errors
  int32_t recursion_ = 0;
  std::string* out_ = nullptr;
  std::shared_ptr<Scope> scope_;
  // Both can hold each other in circles, so they are kept here and emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> macro_scopes_;
};

struct Interpreter::Deeper {
  explicit Deeper(Interpreter& owner) : interpreter(owner) {
    if (++interpreter.recursion_ > interpreter.limits_.recursion) {
      --interpreter.recursion_;
      fail("the template calls itself too deep");
    }
    interpreter.budget_.spend(Budget::kNodeCost);
  }
  ~Deeper() { --interpreter.recursion_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  Interpreter& interpreter;
};

struct Interpreter::Inner {
  Inner(Interpreter& owner, std::shared_ptr<Scope> parent)
      : interpreter(owner), outer(owner.scope_) {
    interpreter.scope_ = std::make_shared<Scope>();
    interpreter.scope_->parent = std::move(parent);
  }
  ~Inner() { interpreter.scope_ = std::move(outer); }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;
  Interpreter& interpreter;
  std::shared_ptr<Scope> outer;
};

}  // namespace lockstep::jinja
