// A parsed template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace lockstep::jinja {

enum class ExpressionKind {
  kConstant,     // value
  kName,         // name
  kList,         // items
  kTuple,        // items
  kDict,         // items: key, value, key, value, ...
  kAttribute,    // items[0] . name
  kSubscript,    // items[0] [ items[1] ]
  kSlice,        // items[0] [ items[1] : items[2] : items[3] ], each may be null
  kCall,         // items[0] ( the other items, named )
  kFilter,       // items[0] | name ( the other items, named ); items[0] is null in a filter block
  kTest,         // items[0] is name ( the other items, named )
  kNot,          // items[0]
  kNegative,     // items[0]
  kPositive,     // items[0]
  kBinary,       // items[0] name items[1], arithmetic
  kAnd,          // items[0] and items[1]
  kOr,           // items[0] or items[1]
  kCompare,      // items[0] operators[0] items[1] operators[1] items[2] ...
  kConcat,       // items joined as text
  kConditional,  // items[1] if items[0] else items[2], which may be null
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  ExpressionKind kind;
  Place place;
  int32_t depth = 1;  // of the tree from here down
  std::string name = {};
  Value value = {};
  std::vector<ExpressionPtr> items = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};
  std::vector<std::string> operators = {};
};

enum class StatementKind {
  kText,         // text
  kOutput,       // expression
  kIf,           // branches; a condition that is null is else
  kFor,          // target in expression if condition: body, else_body
  kSet,          // target = expression
  kSetBlock,     // target = body, through expression (filters) where not null
  kFilterBlock,  // body through expression
  kMacro,        // text (its name), parameters, body
  kWith,         // assignments, body
  kScope,        // body with its own variables
  kBreak,
  kContinue,
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  StatementKind kind;
  Place place;
  std::string text = {};
  ExpressionPtr target = {};  // kName, kTuple of targets, or kAttribute of a name (namespace)
  ExpressionPtr expression = {};
  ExpressionPtr condition = {};
  std::vector<Branch> branches = {};
  // Parameters of a macro with their defaults (or null); assignments of a with block.
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> parameters = {};
  Body body = {};
  Body else_body = {};
};

}  // namespace lockstep::jinja
