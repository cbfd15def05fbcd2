// SPDX-License-Identifier: Apache-2.0
// Recursive descent over the tokens of a template: expressions (jinja_expressions.cpp); statements build on
// it (jinja_parser.cpp). Every method returns null after the first error, which is kept.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/suggest.h"
#include "data/jinja_ast.h"
#include "data/jinja_lexer.h"

namespace lockstep::data {

class JinjaExpressionParser {
 protected:
  using Token = JinjaToken;
  using Node = JinjaNode;
  using NodePtr = JinjaNodePtr;

  static constexpr int kMaxDepth = 200;  // of nesting, also of a long chain of operators; guards the stack

  explicit JinjaExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  bool at(Token::Kind kind) const { return now().kind == kind; }
  bool at_op(std::string_view op) const { return now().is_operator(op); }
  bool at_name(std::string_view name) const { return now().is_name(name); }
  Token take() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip_op(std::string_view op) {
    if (!at_op(op)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!at_name(name)) return false;
    take();
    return true;
  }
  bool failed() const { return !error_.ok(); }
  NodePtr fail(const std::string& what) {
    if (!failed()) error_ = invalid("chat template line {}: {}", now().line, what);
    return nullptr;
  }
  NodePtr unexpected(std::string_view wanted) {
    std::string found = now().text;
    if (at(Token::Kind::kEnd)) found = "the end";
    if (at(Token::Kind::kBlockEnd)) found = "%}";
    if (at(Token::Kind::kVariableEnd)) found = "}}";
    return fail(fmt::format("expected {}, found '{}'", wanted, found));
  }
  bool expect_op(std::string_view op) {
    if (skip_op(op)) return true;
    unexpected(fmt::format("'{}'", op));
    return false;
  }
  bool expect_block_end() {
    if (at(Token::Kind::kBlockEnd)) {
      take();
      return true;
    }
    unexpected("the end of the tag");
    return false;
  }
  std::string expect_name() {
    if (at(Token::Kind::kName)) return take().text;
    unexpected("a name");
    return {};
  }

  NodePtr node(Node::Kind kind, int line) {
    auto result = std::make_unique<Node>();
    result->kind = kind;
    result->line = line;
    return result;
  }
  // Adds children (null stays null) and keeps the depth; null after an error.
  template <typename... Children>
  NodePtr with(NodePtr parent, Children... children) {
    if (failed()) return nullptr;
    (adopt(*parent, std::move(children)), ...);
    if (failed()) return nullptr;
    return parent;
  }
  void adopt(Node& parent, NodePtr child) {
    if (child != nullptr) measure(parent, *child);
    parent.children.push_back(std::move(child));
  }
  void measure(Node& parent, const Node& child) {
    parent.depth = std::max(parent.depth, child.depth + 1);
    if (parent.depth > kMaxDepth) fail("nested too deeply");
  }
  bool known(std::string_view what, const std::string& name, const std::vector<std::string>& names) {
    if (std::find(names.begin(), names.end(), name) != names.end()) return true;
    const std::string near = nearest_name(name, names);
    fail(std::string(what) + " '" + name + "' is not supported" +
         (near.empty() ? std::string() : "; nearest known: '" + near + "'"));
    return false;
  }

  // Guards recursion through parentheses, lists, blocks.
  struct Nested {
    explicit Nested(JinjaExpressionParser& parser) : parser(parser) {
      if (++parser.nesting_ > kMaxDepth) parser.fail("nested too deeply");
    }
    ~Nested() { --parser.nesting_; }
    JinjaExpressionParser& parser;
  };

  NodePtr tuple(bool with_condition);
  NodePtr expression();
  NodePtr or_expression();
  NodePtr and_expression();
  NodePtr not_expression();
  NodePtr compare();
  NodePtr binary(NodePtr left, NodePtr (JinjaExpressionParser::*next)());
  NodePtr sum();
  NodePtr concat();
  NodePtr product();
  NodePtr power();
  NodePtr filtered_unary();
  NodePtr unary(bool with_filter);
  NodePtr constant(Value value);
  NodePtr primary();
  NodePtr list();
  NodePtr dict();
  NodePtr postfix(NodePtr value);
  NodePtr member(NodePtr value);
  NodePtr subscript(NodePtr value);
  NodePtr arguments(NodePtr call);
  NodePtr filters(NodePtr value);
  NodePtr test(NodePtr value);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  Status error_;
};

}  // namespace lockstep::data
