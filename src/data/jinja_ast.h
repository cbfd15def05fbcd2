// SPDX-License-Identifier: Apache-2.0
// Chat templates, second stage: the tree, and the names of what the evaluator knows.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "data/value.h"

namespace lockstep::data {

struct JinjaNode;
using JinjaNodePtr = std::unique_ptr<JinjaNode>;

struct JinjaNode {
  enum class Kind {
    // Expressions. `a`, `b`, ... are children in order.
    kConstant,     // constant
    kName,         // text
    kList,         // children
    kTuple,        // children
    kDict,         // children: key, value, key, value, ...
    kAttribute,    // a.text
    kItem,         // a[b]
    kSlice,        // a[b:c:d]; b, c, d may be null
    kCall,         // text(...): arguments are children
    kMethod,       // a.text(...): the rest of the children are arguments
    kFilter,       // a | text(...)
    kTest,         // a is text(...); negated: is not
    kUnary,        // text: not, -, +
    kBinary,       // a text b: + - * / // % **
    kAnd,          // a and b
    kOr,           // a or b
    kCompare,      // a operators[0] b operators[1] c ...
    kConcat,       // a ~ b ~ ...
    kConditional,  // a if b else c; c may be null
    // Statements.
    kBlock,      // children
    kText,       // text
    kOutput,     // {{ a }}
    kIf,         // condition, block, condition, block, ... [else block]
    kFor,        // names in a: a, filter or null, body, else body or null
    kSet,        // names = a
    kSetBlock,   // names[0] = block a
    kSetMember,  // names[0].names[1] = a
    kMacro,      // text(names): body a; children from 1 on are defaults of the last names
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kConstant;
  int line = 0;
  int depth = 1;  // of the tree below
  bool negated = false;
  std::string text;
  Value constant;
  std::vector<JinjaNodePtr> children;
  std::vector<std::pair<std::string, JinjaNodePtr>> keywords;
  std::vector<std::string> operators;
  std::vector<std::string> names;
};

// Errors name the line; so do names of filters, tests and methods that are not known.
Result<JinjaNodePtr> parse_jinja(std::string_view source);

// For the refusal at parse time (jinja_filters.cpp, jinja_methods.cpp).
const std::vector<std::string>& jinja_filter_names();
const std::vector<std::string>& jinja_test_names();
const std::vector<std::string>& jinja_method_names();

}  // namespace lockstep::data
