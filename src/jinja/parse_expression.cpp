#include <algorithm>

#include "jinja/library.h"
#include "jinja/parser.h"

namespace lockstep::jinja {

ExpressionPtr Parser::make(ExpressionKind kind, Place place, std::vector<ExpressionPtr> items,
                           std::string name) const {
  auto expression = std::make_unique<Expression>(Expression{.kind = kind, .place = place});
  expression->name = std::move(name);
  expression->items = std::move(items);
  update_depth(*expression);
  return expression;
}

// Chains such as a.b.c.d or 1+1+1 grow without recursion of the parser, so the tree is measured.
void Parser::update_depth(Expression& expression) const {
  for (const auto& item : expression.items) {
    if (item) expression.depth = std::max(expression.depth, item->depth + 1);
  }
  for (const auto& [name, item] : expression.named) {
    expression.depth = std::max(expression.depth, item->depth + 1);
  }
  check_depth(expression.depth);
}

ExpressionPtr Parser::parse_expression(bool conditional) {
  const Nested nested(*this);
  ExpressionPtr result = parse_or();
  while (conditional && peek().is_name("if")) {
    const Place place = next().place;
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    result = node(ExpressionKind::kConditional, place, std::move(condition), std::move(result),
                  std::move(otherwise));
  }
  return result;
}

bool Parser::ends_tuple() const {
  const Token& token = peek();
  return token.kind == TokenKind::kBlockEnd || token.kind == TokenKind::kOutputEnd ||
         token.is(")") || token.is("=") || token.is_name("in");
}

ExpressionPtr Parser::parse_tuple(bool conditional) {
  const Place place = peek().place;
  std::vector<ExpressionPtr> items;
  items.push_back(parse_expression(conditional));
  if (!peek().is(",")) return std::move(items[0]);
  while (skip(",")) {
    if (ends_tuple()) break;
    items.push_back(parse_expression(conditional));
  }
  return make(ExpressionKind::kTuple, place, std::move(items));
}

ExpressionPtr Parser::parse_or() {
  ExpressionPtr left = parse_and();
  while (peek().is_name("or")) {
    const Place place = next().place;
    left = node(ExpressionKind::kOr, place, std::move(left), parse_and());
  }
  return left;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr left = parse_not();
  while (peek().is_name("and")) {
    const Place place = next().place;
    left = node(ExpressionKind::kAnd, place, std::move(left), parse_not());
  }
  return left;
}

ExpressionPtr Parser::parse_not() {
  if (!peek().is_name("not")) return parse_compare();
  const Nested nested(*this);
  const Place place = next().place;
  return node(ExpressionKind::kNot, place, parse_not());
}

ExpressionPtr Parser::parse_compare() {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  const Place place = peek().place;
  std::vector<ExpressionPtr> items;
  std::vector<std::string> operators;
  items.push_back(parse_sum());
  for (;;) {
    const Token& token = peek();
    const bool symbol =
        token.kind == TokenKind::kOperator &&
        std::find(std::begin(kOperators), std::end(kOperators), token.text) != std::end(kOperators);
    if (symbol) {
      operators.push_back(next().text);
    } else if (skip_name("in")) {
      operators.emplace_back("in");
    } else if (token.is_name("not") && tokens_[at_ + 1].is_name("in")) {
      next();
      next();
      operators.emplace_back("not in");
    } else {
      break;
    }
    items.push_back(parse_sum());
  }
  if (operators.empty()) return std::move(items[0]);
  ExpressionPtr compare = make(ExpressionKind::kCompare, place, std::move(items));
  compare->operators = std::move(operators);
  return compare;
}

ExpressionPtr Parser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (peek().is("+") || peek().is("-")) {
    const Token& token = next();
    left = node(ExpressionKind::kBinary, token.place, std::move(left), parse_concat());
    left->name = token.text;
  }
  return left;
}

ExpressionPtr Parser::parse_concat() {
  const Place place = peek().place;
  std::vector<ExpressionPtr> items;
  do {
    items.push_back(parse_product());
  } while (skip("~"));
  if (items.size() == 1) return std::move(items[0]);
  return make(ExpressionKind::kConcat, place, std::move(items));
}

ExpressionPtr Parser::parse_product() {
  ExpressionPtr left = parse_power();
  while (peek().is("*") || peek().is("/") || peek().is("//") || peek().is("%")) {
    const Token& token = next();
    left = node(ExpressionKind::kBinary, token.place, std::move(left), parse_power());
    left->name = token.text;
  }
  return left;
}

ExpressionPtr Parser::parse_power() {
  ExpressionPtr left = parse_unary();
  while (peek().is("**")) {
    const Token& token = next();
    left = node(ExpressionKind::kBinary, token.place, std::move(left), parse_unary());
    left->name = token.text;
  }
  return left;
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
  const Nested nested(*this);
  ExpressionPtr result;
  if (peek().is("-") || peek().is("+")) {
    const Token& token = next();
    const auto kind = token.is("-") ? ExpressionKind::kNegative : ExpressionKind::kPositive;
    result = node(kind, token.place, parse_unary(false));
  } else {
    result = parse_primary();
  }
  result = parse_postfix(std::move(result));
  return with_filters ? parse_filters(std::move(result)) : std::move(result);
}

ExpressionPtr Parser::parse_primary() {
  const Token& token = peek();
  const auto constant = [&](Value value) {
    ExpressionPtr result = make(ExpressionKind::kConstant, token.place);
    result->value = std::move(value);
    return result;
  };
  if (token.is("(")) return parse_parenthesized();
  if (token.is("[")) return parse_list();
  if (token.is("{")) return parse_dict();
  switch (token.kind) {
    case TokenKind::kInteger:
      next();
      return constant(Value(token.integer));
    case TokenKind::kFloat:
      next();
      return constant(Value(token.real));
    case TokenKind::kString: {
      std::string text;
      while (peek().kind == TokenKind::kString) text += next().text;
      return constant(Value(std::move(text)));
    }
    case TokenKind::kName:
      next();
      if (token.text == "true" || token.text == "True") return constant(Value(true));
      if (token.text == "false" || token.text == "False") return constant(Value(false));
      if (token.text == "none" || token.text == "None") return constant(Value(None{}));
      return make(ExpressionKind::kName, token.place, {}, token.text);
    default:
      fail_at(token, fmt::format("expected an expression, found {}", describe(token)));
  }
}

ExpressionPtr Parser::parse_parenthesized() {
  const Place place = next().place;
  ExpressionPtr inside = peek().is(")") ? make(ExpressionKind::kTuple, place) : parse_tuple();
  expect(")");
  return inside;
}

ExpressionPtr Parser::parse_list() {
  const Place place = next().place;
  std::vector<ExpressionPtr> items;
  while (!peek().is("]")) {
    if (!items.empty()) expect(",");
    if (peek().is("]")) break;
    items.push_back(parse_expression());
  }
  expect("]");
  return make(ExpressionKind::kList, place, std::move(items));
}

ExpressionPtr Parser::parse_dict() {
  const Place place = next().place;
  std::vector<ExpressionPtr> items;
  while (!peek().is("}")) {
    if (!items.empty()) expect(",");
    if (peek().is("}")) break;
    items.push_back(parse_expression());
    expect(":");
    items.push_back(parse_expression());
  }
  expect("}");
  return make(ExpressionKind::kDict, place, std::move(items));
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr subject) {
  for (;;) {
    const Token& token = peek();
    if (skip(".")) {
      const Token& name = next();
      if (name.kind == TokenKind::kInteger) {
        ExpressionPtr index = make(ExpressionKind::kConstant, name.place);
        index->value = Value(name.integer);
        subject =
            node(ExpressionKind::kSubscript, token.place, std::move(subject), std::move(index));
      } else if (name.kind == TokenKind::kName) {
        subject = node(ExpressionKind::kAttribute, token.place, std::move(subject));
        subject->name = name.text;
      } else {
        fail_at(name, fmt::format("expected a name after '.', found {}", describe(name)));
      }
    } else if (token.is("[")) {
      subject = parse_subscript(std::move(subject));
    } else if (token.is("(")) {
      subject = node(ExpressionKind::kCall, token.place, std::move(subject));
      parse_arguments(*subject);
    } else {
      return subject;
    }
  }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr subject) {
  const Place place = next().place;
  std::vector<ExpressionPtr> items;
  items.push_back(std::move(subject));
  bool slice = false;
  const auto optional = [&] {
    items.push_back(peek().is(":") || peek().is("]") ? nullptr : parse_expression());
  };
  if (peek().is("]")) fail_at(peek(), "expected an expression, found ']'");
  optional();
  while (items.size() < 4 && skip(":")) {
    slice = true;
    optional();
  }
  if (peek().is(",")) fail_at(peek(), "several subscripts at once are not supported");
  expect("]");
  if (slice) items.resize(4);
  return make(slice ? ExpressionKind::kSlice : ExpressionKind::kSubscript, place, std::move(items));
}

ExpressionPtr Parser::parse_filters(ExpressionPtr subject, bool start_with_name) {
  if (start_with_name) subject = parse_filter_or_test(ExpressionKind::kFilter, nullptr);
  for (;;) {
    const Token& token = peek();
    if (skip("|")) {
      subject = parse_filter_or_test(ExpressionKind::kFilter, std::move(subject));
    } else if (subject && skip_name("is")) {
      const bool negated = skip_name("not");
      subject = parse_filter_or_test(ExpressionKind::kTest, std::move(subject));
      if (negated) subject = node(ExpressionKind::kNot, token.place, std::move(subject));
    } else if (subject && token.is("(")) {
      subject = node(ExpressionKind::kCall, token.place, std::move(subject));
      parse_arguments(*subject);
    } else {
      return subject;
    }
  }
}

ExpressionPtr Parser::parse_filter_or_test(ExpressionKind kind, ExpressionPtr subject) {
  const bool filter = kind == ExpressionKind::kFilter;
  const Token& token = peek();
  ExpressionPtr result = node(kind, token.place, std::move(subject));
  result->name = take_name(filter ? "the name of a filter" : "the name of a test");
  if (peek().is("(")) {
    parse_arguments(*result);
    return result;
  }
  const Token& argument = peek();
  const bool starts_value =
      argument.kind == TokenKind::kString || argument.kind == TokenKind::kInteger ||
      argument.kind == TokenKind::kFloat || argument.is("[") || argument.is("{") ||
      (argument.kind == TokenKind::kName && argument.text != "else" && argument.text != "or" &&
       argument.text != "and" && argument.text != "if" && argument.text != "not" &&
       argument.text != "in");
  if (!filter && starts_value) {
    if (argument.text == "is" && argument.kind == TokenKind::kName) {
      fail_at(argument, "tests cannot be chained with 'is'");
    }
    result->items.push_back(parse_postfix(parse_primary()));
    update_depth(*result);
  }
  return result;
}

void Parser::parse_arguments(Expression& call) {
  const Nested nested(*this);
  expect("(");
  bool first = true;
  while (!peek().is(")")) {
    if (!std::exchange(first, false)) expect(",");
    if (peek().is(")")) break;
    if (peek().is("*") || peek().is("**")) {
      fail_at(peek(), fmt::format("'{}' in a call is not supported", peek().text));
    }
    if (peek().kind == TokenKind::kName && tokens_[at_ + 1].is("=")) {
      std::string name = next().text;
      next();
      call.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!call.named.empty()) fail_at(peek(), "a positional argument after a named one");
      call.items.push_back(parse_expression());
    }
  }
  expect(")");
  update_depth(call);
}

}  // namespace lockstep::jinja
