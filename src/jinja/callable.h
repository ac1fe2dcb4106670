// What a template can call, and what a loop knows about itself.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace lockstep::jinja {

struct Statement;

// Variables of a block; a name is looked up here, then in the parents.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::map<std::string, Value, std::less<>> variables;
};

struct Callable {
  enum class Kind { kGlobal, kMethod, kMacro };
  Kind kind;
  std::string name;
  Value receiver = {};                // of a method
  const Statement* macro = nullptr;   // of a macro; the template outlives it
  std::shared_ptr<Scope> scope = {};  // where the macro was defined
};

struct LoopState {
  Value items;  // a list
  int64_t index = 0;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at `index` or called `name`; null where it is not given.
  const Value* find(size_t index, std::string_view name) const {
    if (index < positional.size()) return &positional[index];
    for (const auto& [key, value] : named) {
      if (key == name) return &value;
    }
    return nullptr;
  }
};

// Checks a call of `what` against the names it takes, in their order; the first `required` must
// be there.
void check_arguments(const Arguments& arguments, std::string_view what,
                     std::initializer_list<std::string_view> names, size_t required);

}  // namespace lockstep::jinja
