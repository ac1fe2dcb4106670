// Tokens to a tree. Two files: parser.cpp has the statements, parse_expression.cpp the expressions.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace lockstep::jinja {

// Bounds the recursion of parser, interpreter and destructors alike.
constexpr int32_t kMaxNesting = 200;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body parse();  // throws TemplateError

 private:
  using Names = std::initializer_list<std::string_view>;

  const Token& peek() const { return tokens_[at_]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect(std::string_view symbol);
  void expect_name(std::string_view name);
  void expect_block_end();
  std::string take_name(std::string_view what);
  [[noreturn]] void fail_at(const Token& token, std::string message) const;
  void check_depth(int32_t depth) const;

  // Counts nested calls of the parser while it lives.
  struct Nested {
    explicit Nested(Parser& owner) : parser(owner) { parser.check_depth(++parser.nesting_); }
    ~Nested() { --parser.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    Parser& parser;
  };

  // Statements up to a tag of one of these names, which is consumed up to its name.
  Body parse_body(Names ends, std::string& end);
  Body parse_body_to(std::string_view end);
  std::unique_ptr<Statement> parse_statement();
  std::unique_ptr<Statement> parse_if(Place place);
  std::unique_ptr<Statement> parse_for(Place place);
  std::unique_ptr<Statement> parse_set(Place place);
  std::unique_ptr<Statement> parse_macro(Place place);
  std::unique_ptr<Statement> parse_with(Place place);
  ExpressionPtr parse_target(bool allow_attribute);
  ExpressionPtr parse_single_target(bool allow_attribute);

  ExpressionPtr make(ExpressionKind kind, Place place, std::vector<ExpressionPtr> items = {},
                     std::string name = {}) const;
  template <class... Items>
  ExpressionPtr node(ExpressionKind kind, Place place, Items... items) const {
    std::vector<ExpressionPtr> list;
    (list.push_back(std::move(items)), ...);
    return make(kind, place, std::move(list));
  }
  void update_depth(Expression& expression) const;

  ExpressionPtr parse_expression(bool conditional = true);
  ExpressionPtr parse_tuple(bool conditional = true);
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_parenthesized();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr subject);
  ExpressionPtr parse_subscript(ExpressionPtr subject);
  ExpressionPtr parse_filters(ExpressionPtr subject, bool start_with_name = false);
  ExpressionPtr parse_filter_or_test(ExpressionKind kind, ExpressionPtr subject);
  void parse_arguments(Expression& call);
  bool ends_tuple() const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int32_t nesting_ = 0;
  int32_t loops_ = 0;  // loops around, inside of the current macro
};

}  // namespace lockstep::jinja
