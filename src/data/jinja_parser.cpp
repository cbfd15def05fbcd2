// SPDX-License-Identifier: Apache-2.0
// Statements.
#include "data/jinja_parser.h"

namespace lockstep::data {
namespace {

class Parser : private JinjaExpressionParser {
 public:
  explicit Parser(std::vector<JinjaToken> tokens) : JinjaExpressionParser(std::move(tokens)) {}

  Result<JinjaNodePtr> run() {
    NodePtr block = statements({});
    if (!failed() && !at(Token::Kind::kEnd)) fail("unexpected end of a block");
    if (failed()) return error_;
    return block;
  }

 private:
  bool at_end_tag(const std::vector<std::string_view>& ends) const {
    if (!at(Token::Kind::kBlockBegin)) return false;
    const Token& next = tokens_[at_ + 1];
    return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return next.is_name(end); });
  }

  // Up to one of `ends` (not taken) or the end of the text.
  NodePtr statements(const std::vector<std::string_view>& ends) {
    const Nested nested(*this);
    NodePtr block = node(Node::Kind::kBlock, now().line);
    while (!failed() && !at(Token::Kind::kEnd) && !at_end_tag(ends)) {
      NodePtr statement;
      if (at(Token::Kind::kData)) {
        statement = node(Node::Kind::kText, now().line);
        statement->text = take().text;
      } else if (at(Token::Kind::kVariableBegin)) {
        const int line = take().line;
        statement = with(node(Node::Kind::kOutput, line), tuple(true));
        if (!failed() && !at(Token::Kind::kVariableEnd)) unexpected("the end of the tag");
        take();
      } else {
        take();  // block begin
        statement = tag();
      }
      if (failed()) return nullptr;
      adopt(*block, std::move(statement));
    }
    if (!failed() && !ends.empty() && at(Token::Kind::kEnd)) {
      fail(fmt::format("the template ends before '{}'", ends.back()));
    }
    if (failed()) return nullptr;
    return block;
  }

  NodePtr tag() {
    if (!at(Token::Kind::kName)) return unexpected("a statement");
    const std::string name = now().text;
    if (name == "if") return if_statement();
    if (name == "for") return for_statement();
    if (name == "set") return set_statement();
    if (name == "macro") return macro_statement();
    if (name == "generation") {
      take();
      expect_block_end();
      NodePtr body = statements({"endgeneration"});
      return end_tag(std::move(body));
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return fail("'" + name + "' outside a loop");
      NodePtr result = node(name == "break" ? Node::Kind::kBreak : Node::Kind::kContinue, take().line);
      expect_block_end();
      return result;
    }
    static const std::vector<std::string> kStatements = {
        "if",     "elif",  "else",     "endif", "for",      "endfor",     "set",
        "endset", "macro", "endmacro", "break", "continue", "generation", "raw"};
    const bool misplaced = std::find(kStatements.begin(), kStatements.end(), name) != kStatements.end();
    if (misplaced) return fail("'" + name + "' stands where it cannot");
    known("statement", name, kStatements);
    return nullptr;
  }

  // The end tag that statements() stopped at.
  NodePtr end_tag(NodePtr result) {
    if (failed()) return nullptr;
    take();
    take();
    expect_block_end();
    if (failed()) return nullptr;
    return result;
  }

  NodePtr if_statement() {
    NodePtr result = node(Node::Kind::kIf, now().line);
    while (!failed()) {
      take();  // if or elif
      NodePtr condition = tuple(false);
      expect_block_end();
      if (failed()) return nullptr;
      NodePtr body = statements({"elif", "else", "endif"});
      result = with(std::move(result), std::move(condition), std::move(body));
      if (failed()) return nullptr;
      take();  // block begin
      if (at_name("elif")) continue;
      if (skip_name("else")) {
        expect_block_end();
        if (failed()) return nullptr;
        result = with(std::move(result), statements({"endif"}));
        if (failed()) return nullptr;
        take();
      }
      take();  // endif
      expect_block_end();
      if (failed()) return nullptr;
      return result;
    }
    return nullptr;
  }

  std::vector<std::string> target_names(std::string_view end) {
    std::vector<std::string> names;
    const bool parenthesised = skip_op("(");
    do {
      if (!names.empty() && (at_name(end) || at_op(end) || at_op(")"))) break;
      names.push_back(expect_name());
      static const std::vector<std::string> kConstants = {"true",  "false", "none", "True",
                                                          "False", "None",  "loop"};
      if (std::find(kConstants.begin(), kConstants.end(), names.back()) != kConstants.end()) {
        fail("cannot assign to '" + names.back() + "'");
      }
    } while (!failed() && skip_op(","));
    if (parenthesised) expect_op(")");
    return names;
  }

  NodePtr for_statement() {
    NodePtr result = node(Node::Kind::kFor, take().line);
    result->names = target_names("in");
    if (failed() || !skip_name("in")) return unexpected("'in'");
    NodePtr items = tuple(false);
    NodePtr filter;
    if (!failed() && skip_name("if")) filter = expression();
    if (!failed() && at_name("recursive")) return fail("a recursive loop is not supported");
    expect_block_end();
    if (failed()) return nullptr;
    ++loops_;
    NodePtr body = statements({"else", "endfor"});
    --loops_;
    if (failed()) return nullptr;
    take();
    NodePtr otherwise;
    if (skip_name("else")) {
      expect_block_end();
      if (failed()) return nullptr;
      otherwise = statements({"endfor"});
      if (failed()) return nullptr;
      take();
    }
    take();
    expect_block_end();
    return with(std::move(result), std::move(items), std::move(filter), std::move(body),
                std::move(otherwise));
  }

  NodePtr set_statement() {
    const int line = take().line;
    NodePtr result = node(Node::Kind::kSet, line);
    if (at(Token::Kind::kName) && tokens_[at_ + 1].is_operator(".")) {
      result->kind = Node::Kind::kSetMember;
      result->names.push_back(expect_name());
      take();
      result->names.push_back(expect_name());
    } else {
      result->names = target_names("=");
    }
    if (failed()) return nullptr;
    if (skip_op("=")) {
      result = with(std::move(result), tuple(true));
      expect_block_end();
      if (failed()) return nullptr;
      return result;
    }
    if (result->kind != Node::Kind::kSet || result->names.size() != 1) return unexpected("'='");
    if (at_op("|")) return fail("a filter on a set block is not supported");
    expect_block_end();
    if (failed()) return nullptr;
    result->kind = Node::Kind::kSetBlock;
    const int loops = std::exchange(loops_, 0);
    result = with(std::move(result), statements({"endset"}));
    loops_ = loops;
    return end_tag(std::move(result));
  }

  NodePtr macro_statement() {
    NodePtr result = node(Node::Kind::kMacro, take().line);
    result->text = expect_name();
    std::vector<NodePtr> defaults;
    if (failed() || !expect_op("(")) return nullptr;
    while (!failed() && !at_op(")")) {
      if (!result->names.empty() && !expect_op(",")) return nullptr;
      result->names.push_back(expect_name());
      if (skip_op("=")) {
        defaults.push_back(expression());
      } else if (!defaults.empty()) {
        return fail("a parameter without default after one with");
      }
    }
    if (failed() || !expect_op(")") || !expect_block_end()) return nullptr;
    const int loops = std::exchange(loops_, 0);
    result = with(std::move(result), statements({"endmacro"}));
    loops_ = loops;
    for (NodePtr& value : defaults) result = with(std::move(result), std::move(value));
    return end_tag(std::move(result));
  }

  int loops_ = 0;
};

}  // namespace

Result<JinjaNodePtr> parse_jinja(std::string_view source) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<JinjaToken> tokens, lex_jinja(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace lockstep::data
