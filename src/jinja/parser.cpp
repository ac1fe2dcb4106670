#include "jinja/parser.h"

#include <algorithm>

namespace lockstep::jinja {

bool Parser::skip(std::string_view symbol) {
  if (!peek().is(symbol)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!peek().is_name(name)) return false;
  next();
  return true;
}

void Parser::expect(std::string_view symbol) {
  if (!skip(symbol)) {
    fail_at(peek(), fmt::format("expected '{}', found {}", symbol, describe(peek())));
  }
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) {
    fail_at(peek(), fmt::format("expected '{}', found {}", name, describe(peek())));
  }
}

void Parser::expect_block_end() {
  if (peek().kind != TokenKind::kBlockEnd) {
    fail_at(peek(), fmt::format("expected '%}}', found {}", describe(peek())));
  }
  next();
}

std::string Parser::take_name(std::string_view what) {
  if (peek().kind != TokenKind::kName) {
    fail_at(peek(), fmt::format("expected {}, found {}", what, describe(peek())));
  }
  return next().text;
}

void Parser::fail_at(const Token& token, std::string message) const {
  throw TemplateError{std::move(message), token.place};
}

void Parser::check_depth(int32_t depth) const {
  if (depth > kMaxNesting) {
    fail_at(peek(), fmt::format("the template is nested deeper than {}", kMaxNesting));
  }
}

Body Parser::parse() {
  std::string end;
  return parse_body({}, end);
}

Body Parser::parse_body_to(std::string_view end) {
  expect_block_end();
  std::string found;
  Body body = parse_body({end}, found);
  expect_block_end();
  return body;
}

Body Parser::parse_body(Names ends, std::string& end) {
  const Nested nested(*this);
  Body body;
  for (;;) {
    const Token& token = next();
    switch (token.kind) {
      case TokenKind::kText:
        body.push_back(std::make_unique<Statement>(
            Statement{.kind = StatementKind::kText, .place = token.place, .text = token.text}));
        break;
      case TokenKind::kOutputBegin: {
        auto output = std::make_unique<Statement>(
            Statement{.kind = StatementKind::kOutput, .place = token.place});
        output->expression = parse_tuple();
        if (peek().kind != TokenKind::kOutputEnd) {
          fail_at(peek(), fmt::format("expected '}}}}', found {}", describe(peek())));
        }
        next();
        body.push_back(std::move(output));
        break;
      }
      case TokenKind::kBlockBegin: {
        const Token& tag = peek();
        if (tag.kind == TokenKind::kName &&
            std::find(ends.begin(), ends.end(), tag.text) != ends.end()) {
          end = next().text;
          return body;
        }
        body.push_back(parse_statement());
        break;
      }
      default:
        if (ends.size() == 0) return body;
        fail_at(token, fmt::format("the template ends where '{}' is missing", *(ends.end() - 1)));
    }
  }
}

std::unique_ptr<Statement> Parser::parse_statement() {
  const Token& tag = peek();
  const Place place = tag.place;
  const std::string name = take_name("the name of a tag");
  const auto statement = [&](StatementKind kind) {
    return std::make_unique<Statement>(Statement{.kind = kind, .place = place});
  };
  if (name == "if") return parse_if(place);
  if (name == "for") return parse_for(place);
  if (name == "set") return parse_set(place);
  if (name == "macro") return parse_macro(place);
  if (name == "with") return parse_with(place);
  if (name == "filter") {
    auto block = statement(StatementKind::kFilterBlock);
    block->expression = parse_filters(nullptr, true);
    block->body = parse_body_to("endfilter");
    return block;
  }
  if (name == "generation") {  // marks what a model is trained on; its text is as any other
    auto block = statement(StatementKind::kScope);
    block->body = parse_body_to("endgeneration");
    return block;
  }
  if (name == "break" || name == "continue") {
    if (loops_ == 0) fail_at(tag, fmt::format("'{}' outside of a loop", name));
    expect_block_end();
    return statement(name == "break" ? StatementKind::kBreak : StatementKind::kContinue);
  }
  if (name.starts_with("end") || name == "else" || name == "elif") {
    fail_at(tag, fmt::format("'{}' without its beginning", name));
  }
  fail_at(tag, fmt::format("the tag '{}' is not supported", name));
}

std::unique_ptr<Statement> Parser::parse_if(Place place) {
  auto block = std::make_unique<Statement>(Statement{.kind = StatementKind::kIf, .place = place});
  std::string end = "if";
  while (end != "endif") {
    ExpressionPtr condition = end == "else" ? nullptr : parse_tuple(false);
    const bool last = end == "else";
    expect_block_end();
    Body body = last ? parse_body({"endif"}, end) : parse_body({"elif", "else", "endif"}, end);
    block->branches.push_back({std::move(condition), std::move(body)});
  }
  expect_block_end();
  return block;
}

std::unique_ptr<Statement> Parser::parse_for(Place place) {
  auto loop = std::make_unique<Statement>(Statement{.kind = StatementKind::kFor, .place = place});
  loop->target = parse_target(false);
  expect_name("in");
  loop->expression = parse_tuple(false);
  if (skip_name("if")) loop->condition = parse_expression();
  if (peek().is_name("recursive")) fail_at(peek(), "recursive loops are not supported");
  expect_block_end();
  std::string end;
  ++loops_;
  loop->body = parse_body({"else", "endfor"}, end);
  --loops_;
  if (end == "else") {
    loop->else_body = parse_body_to("endfor");
  } else {
    expect_block_end();
  }
  return loop;
}

std::unique_ptr<Statement> Parser::parse_set(Place place) {
  auto set = std::make_unique<Statement>(Statement{.kind = StatementKind::kSet, .place = place});
  set->target = parse_target(true);
  if (skip("=")) {
    set->expression = parse_tuple();
    expect_block_end();
    return set;
  }
  set->kind = StatementKind::kSetBlock;
  if (peek().is("|")) set->expression = parse_filters(nullptr);
  set->body = parse_body_to("endset");
  return set;
}

std::unique_ptr<Statement> Parser::parse_macro(Place place) {
  auto macro =
      std::make_unique<Statement>(Statement{.kind = StatementKind::kMacro, .place = place});
  macro->text = take_name("the name of a macro");
  expect("(");
  while (!peek().is(")")) {
    if (!macro->parameters.empty()) expect(",");
    if (peek().is(")")) break;
    ExpressionPtr name = parse_single_target(false);
    ExpressionPtr fallback;
    if (skip("=")) {
      fallback = parse_expression();
    } else if (!macro->parameters.empty() && macro->parameters.back().second) {
      fail_at(peek(), "a parameter without default after one with a default");
    }
    macro->parameters.emplace_back(std::move(name), std::move(fallback));
  }
  expect(")");
  const int32_t loops = std::exchange(loops_, 0);
  macro->body = parse_body_to("endmacro");
  loops_ = loops;
  return macro;
}

std::unique_ptr<Statement> Parser::parse_with(Place place) {
  auto with = std::make_unique<Statement>(Statement{.kind = StatementKind::kWith, .place = place});
  while (peek().kind != TokenKind::kBlockEnd) {
    if (!with->parameters.empty()) expect(",");
    ExpressionPtr target = parse_target(false);
    expect("=");
    with->parameters.emplace_back(std::move(target), parse_expression());
  }
  with->body = parse_body_to("endwith");
  return with;
}

// A name, `namespace.attribute`, or several of them.
ExpressionPtr Parser::parse_target(bool allow_attribute) {
  const Place place = peek().place;
  std::vector<ExpressionPtr> targets;
  const Nested nested(*this);
  do {
    if (!targets.empty() && ends_tuple()) break;  // a comma at the end
    if (skip("(")) {
      targets.push_back(parse_target(allow_attribute));
      expect(")");
    } else {
      targets.push_back(parse_single_target(allow_attribute));
    }
  } while (skip(","));
  const bool tuple = targets.size() > 1 || tokens_[at_ - 1].is(",");
  return tuple ? make(ExpressionKind::kTuple, place, std::move(targets)) : std::move(targets[0]);
}

ExpressionPtr Parser::parse_single_target(bool allow_attribute) {
  const Token& token = peek();
  const std::string name = take_name("a name to assign to");
  static constexpr std::string_view kReserved[] = {"true",  "false", "none", "True",
                                                   "False", "None",  "loop"};
  if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
    fail_at(token, fmt::format("'{}' cannot be assigned to", name));
  }
  ExpressionPtr target = make(ExpressionKind::kName, token.place, {}, name);
  if (!allow_attribute || !skip(".")) return target;
  ExpressionPtr attribute = node(ExpressionKind::kAttribute, token.place, std::move(target));
  attribute->name = take_name("the name of an attribute");
  return attribute;
}

}  // namespace lockstep::jinja
