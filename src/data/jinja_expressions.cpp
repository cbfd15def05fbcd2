// SPDX-License-Identifier: Apache-2.0
// Precedence as in Jinja: concat binds tighter than + and -, filters tighter than unary minus (-1|abs is
// (-1)|abs), a condition least of all.
#include <algorithm>

#include "data/jinja_parser.h"

namespace lockstep::data {

// One expression, or several with commas: a tuple.
JinjaNodePtr JinjaExpressionParser::tuple(bool with_condition) {
  const int line = now().line;
  const auto element = [&] { return with_condition ? expression() : or_expression(); };
  NodePtr first = element();
  if (failed() || !at_op(",")) return first;
  NodePtr result = with(node(Node::Kind::kTuple, line), std::move(first));
  while (!failed() && skip_op(",")) {
    if (at(Token::Kind::kVariableEnd) || at(Token::Kind::kBlockEnd) || at_op(")")) break;
    result = with(std::move(result), element());
  }
  return result;
}

JinjaNodePtr JinjaExpressionParser::expression() {
  const Nested nested(*this);
  if (failed()) return nullptr;
  NodePtr result = or_expression();
  while (!failed() && at_name("if")) {
    const int line = take().line;
    NodePtr condition = or_expression();
    NodePtr otherwise;
    if (!failed() && skip_name("else")) otherwise = expression();
    result = with(node(Node::Kind::kConditional, line), std::move(result), std::move(condition),
                  std::move(otherwise));
  }
  return result;
}

JinjaNodePtr JinjaExpressionParser::or_expression() {
  NodePtr left = and_expression();
  while (!failed() && at_name("or")) {
    const int line = take().line;
    left = with(node(Node::Kind::kOr, line), std::move(left), and_expression());
  }
  return left;
}

JinjaNodePtr JinjaExpressionParser::and_expression() {
  NodePtr left = not_expression();
  while (!failed() && at_name("and")) {
    const int line = take().line;
    left = with(node(Node::Kind::kAnd, line), std::move(left), not_expression());
  }
  return left;
}

JinjaNodePtr JinjaExpressionParser::not_expression() {
  if (!at_name("not")) return compare();
  const Nested nested(*this);
  NodePtr result = node(Node::Kind::kUnary, take().line);
  result->text = "not";
  return failed() ? nullptr : with(std::move(result), not_expression());
}

JinjaNodePtr JinjaExpressionParser::compare() {
  NodePtr left = sum();
  if (failed()) return nullptr;
  NodePtr result;
  while (!failed()) {
    std::string op;
    for (const char* candidate : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (at_op(candidate)) op = candidate;
    }
    if (at_name("in")) op = "in";
    if (at_name("not") && tokens_[at_ + 1].is_name("in")) op = "not in";
    if (op.empty()) break;
    if (result == nullptr) result = with(node(Node::Kind::kCompare, now().line), std::move(left));
    take();
    if (op == "not in") take();
    result->operators.push_back(op);
    result = with(std::move(result), sum());
  }
  return result != nullptr ? std::move(result) : std::move(left);
}

JinjaNodePtr JinjaExpressionParser::binary(NodePtr left, NodePtr (JinjaExpressionParser::*next)()) {
  const Token op = take();
  NodePtr result = node(Node::Kind::kBinary, op.line);
  result->text = op.text;
  return with(std::move(result), std::move(left), (this->*next)());
}

JinjaNodePtr JinjaExpressionParser::sum() {
  NodePtr left = concat();
  while (!failed() && (at_op("+") || at_op("-")))
    left = binary(std::move(left), &JinjaExpressionParser::concat);
  return left;
}

JinjaNodePtr JinjaExpressionParser::concat() {
  const int line = now().line;
  NodePtr first = product();
  if (failed() || !at_op("~")) return first;
  NodePtr result = with(node(Node::Kind::kConcat, line), std::move(first));
  while (!failed() && skip_op("~")) result = with(std::move(result), product());
  return result;
}

JinjaNodePtr JinjaExpressionParser::product() {
  NodePtr left = power();
  while (!failed() && (at_op("*") || at_op("/") || at_op("//") || at_op("%"))) {
    left = binary(std::move(left), &JinjaExpressionParser::power);
  }
  return left;
}

JinjaNodePtr JinjaExpressionParser::power() {
  NodePtr left = filtered_unary();
  while (!failed() && at_op("**")) left = binary(std::move(left), &JinjaExpressionParser::filtered_unary);
  return left;
}

JinjaNodePtr JinjaExpressionParser::filtered_unary() {
  return unary(true);
}

JinjaNodePtr JinjaExpressionParser::unary(bool with_filter) {
  const Nested nested(*this);
  if (failed()) return nullptr;
  NodePtr result;
  if (at_op("-") || at_op("+")) {
    const Token op = take();
    result = node(Node::Kind::kUnary, op.line);
    result->text = op.text;
    result = with(std::move(result), unary(false));
  } else {
    result = primary();
  }
  result = postfix(std::move(result));
  return with_filter ? filters(std::move(result)) : std::move(result);
}

JinjaNodePtr JinjaExpressionParser::constant(Value value) {
  NodePtr result = node(Node::Kind::kConstant, now().line);
  result->constant = std::move(value);
  return result;
}

JinjaNodePtr JinjaExpressionParser::primary() {
  const int line = now().line;
  if (at(Token::Kind::kName)) {
    const std::string name = take().text;
    if (name == "true" || name == "True") return constant(Value::boolean(true));
    if (name == "false" || name == "False") return constant(Value::boolean(false));
    if (name == "none" || name == "None") return constant(Value::none());
    NodePtr result = node(Node::Kind::kName, line);
    result->text = name;
    return result;
  }
  if (at(Token::Kind::kString)) {
    std::string text;
    while (at(Token::Kind::kString)) text += take().text;
    return constant(Value::string(std::move(text)));
  }
  if (at(Token::Kind::kInt)) return constant(Value::integer(take().int_value));
  if (at(Token::Kind::kFloat)) return constant(Value::real(take().float_value));
  if (skip_op("(")) {
    if (skip_op(")")) return node(Node::Kind::kTuple, line);
    NodePtr inside = tuple(true);
    return failed() || !expect_op(")") ? nullptr : std::move(inside);
  }
  if (at_op("[")) return list();
  if (at_op("{")) return dict();
  return unexpected("an expression");
}

JinjaNodePtr JinjaExpressionParser::list() {
  NodePtr result = node(Node::Kind::kList, take().line);
  while (!failed() && !at_op("]")) {
    if (!result->children.empty() && !expect_op(",")) return nullptr;
    if (at_op("]")) break;
    result = with(std::move(result), expression());
  }
  return failed() || !expect_op("]") ? nullptr : std::move(result);
}

JinjaNodePtr JinjaExpressionParser::dict() {
  NodePtr result = node(Node::Kind::kDict, take().line);
  while (!failed() && !at_op("}")) {
    if (!result->children.empty() && !expect_op(",")) return nullptr;
    if (at_op("}")) break;
    NodePtr key = expression();
    if (failed() || !expect_op(":")) return nullptr;
    result = with(std::move(result), std::move(key), expression());
  }
  return failed() || !expect_op("}") ? nullptr : std::move(result);
}

JinjaNodePtr JinjaExpressionParser::postfix(NodePtr value) {
  while (!failed()) {
    if (at_op(".")) {
      value = member(std::move(value));
    } else if (at_op("[")) {
      value = subscript(std::move(value));
    } else if (at_op("(")) {
      if (value->kind != Node::Kind::kName) return fail("a call of an expression is not supported");
      NodePtr call = node(Node::Kind::kCall, now().line);
      call->text = value->text;
      value = arguments(std::move(call));
    } else {
      break;
    }
  }
  if (failed()) return nullptr;
  return value;
}

JinjaNodePtr JinjaExpressionParser::member(NodePtr value) {
  const int line = take().line;
  if (at(Token::Kind::kInt)) {
    NodePtr index = constant(Value::integer(take().int_value));
    return with(node(Node::Kind::kItem, line), std::move(value), std::move(index));
  }
  const std::string name = expect_name();
  if (failed()) return nullptr;
  const bool call = at_op("(");
  NodePtr result = node(call ? Node::Kind::kMethod : Node::Kind::kAttribute, line);
  result->text = name;
  result = with(std::move(result), std::move(value));
  if (failed() || !call) return result;
  if (!known("method", name, jinja_method_names())) return nullptr;
  return arguments(std::move(result));
}

JinjaNodePtr JinjaExpressionParser::subscript(NodePtr value) {
  const int line = take().line;
  NodePtr parts[3];
  int colons = 0;
  if (!at_op(":")) parts[0] = expression();
  while (!failed() && colons < 2 && skip_op(":")) {
    ++colons;
    if (!at_op(":") && !at_op("]")) parts[colons] = expression();
  }
  if (failed() || !expect_op("]")) return nullptr;
  if (colons == 0) return with(node(Node::Kind::kItem, line), std::move(value), std::move(parts[0]));
  return with(node(Node::Kind::kSlice, line), std::move(value), std::move(parts[0]), std::move(parts[1]),
              std::move(parts[2]));
}

// "(a, b, name=c)": positional ones become children, the others keywords.
JinjaNodePtr JinjaExpressionParser::arguments(NodePtr call) {
  if (failed() || !expect_op("(")) return nullptr;
  bool first = true;
  while (!failed() && !at_op(")")) {
    if (!first && !expect_op(",")) return nullptr;
    if (at_op(")")) break;
    first = false;
    if (at_op("*") || at_op("**")) return fail("* and ** in a call are not supported");
    if (at(Token::Kind::kName) && tokens_[at_ + 1].is_operator("=")) {
      std::string name = take().text;
      take();
      NodePtr value = expression();
      if (failed()) return nullptr;
      measure(*call, *value);
      call->keywords.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call->keywords.empty()) return fail("a positional argument after a named one");
      call = with(std::move(call), expression());
    }
  }
  return failed() || !expect_op(")") ? nullptr : std::move(call);
}

JinjaNodePtr JinjaExpressionParser::filters(NodePtr value) {
  while (!failed()) {
    if (skip_op("|")) {
      NodePtr filter = node(Node::Kind::kFilter, now().line);
      filter->text = expect_name();
      if (failed() || !known("filter", filter->text, jinja_filter_names())) return nullptr;
      filter = with(std::move(filter), std::move(value));
      value = !failed() && at_op("(") ? arguments(std::move(filter)) : std::move(filter);
    } else if (at_name("is")) {
      value = test(std::move(value));
    } else if (at_op("(")) {
      return fail("a call of an expression is not supported");
    } else {
      break;
    }
  }
  if (failed()) return nullptr;
  return value;
}

JinjaNodePtr JinjaExpressionParser::test(NodePtr value) {
  NodePtr result = node(Node::Kind::kTest, take().line);
  result->negated = skip_name("not");
  result->text = expect_name();
  if (failed() || !known("test", result->text, jinja_test_names())) return nullptr;
  result = with(std::move(result), std::move(value));
  if (failed()) return nullptr;
  if (at_op("(")) return arguments(std::move(result));
  const bool ends =
      at_name("else") || at_name("or") || at_name("and") || at_name("if") || at_name("in") || at_name("not");
  if (at_name("is")) return fail("a test after a test: use parentheses");
  const bool argument = at(Token::Kind::kName) || at(Token::Kind::kString) || at(Token::Kind::kInt) ||
                        at(Token::Kind::kFloat) || at_op("[") || at_op("{");
  if (!ends && argument) result = with(std::move(result), postfix(primary()));
  return result;
}

}  // namespace lockstep::data
