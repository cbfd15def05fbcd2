// SPDX-License-Identifier: Apache-2.0
// Walks a template's tree. One evaluator renders one template once. After the first error everything stops
// and the error is returned; work, text and nesting are bounded, so that no template can hang or exhaust the
// process.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "data/jinja_ast.h"
#include "data/jinja_builtins.h"
#include "data/value.h"

namespace lockstep::data {

class JinjaEvaluator {
 public:
  explicit JinjaEvaluator(const ValueMap& variables);
  Result<std::string> render(const JinjaNode& root);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  using Scope = std::vector<std::pair<std::string, Value>>;

  bool failed() const { return !error_.ok(); }
  // Keeps the first error; returns undefined.
  Value fail(const JinjaNode& node, const std::string& what);
  Value unwrap(const JinjaNode& node, Result<Value> result);
  bool charge(const JinjaNode& node, size_t work);
  // For work that passes over a value as such, and for work that looks at all it holds, once and once more
  // for each part of the arguments.
  void charge_for(const JinjaNode& node, const Value& value);
  bool charge_deep(const JinjaNode& node, const Value& value, const JinjaArguments& arguments = {});
  // str(), paid for; empty after an error.
  std::string text_of(const JinjaNode& node, const Value& value);

  Flow execute(const JinjaNode& node);
  Flow execute_block(const JinjaNode& node);
  Flow execute_if(const JinjaNode& node);
  void execute_for(const JinjaNode& node);
  void execute_set(const JinjaNode& node);
  bool bind(const JinjaNode& node, const Value& value);
  Value::List loop_items(const JinjaNode& node);
  std::string captured(const JinjaNode& body);

  Value evaluate(const JinjaNode& node);
  Value evaluate_kind(const JinjaNode& node);
  Value collection(const JinjaNode& node);
  Value attribute(const JinjaNode& node);
  Value call(const JinjaNode& node);
  Value call_macro(const JinjaNode& node, const JinjaNode& macro, const JinjaArguments& arguments);
  Value method(const JinjaNode& node);
  Value compare(const JinjaNode& node);
  Value unary(const JinjaNode& node);
  // A child that must not be undefined.
  Value defined(const JinjaNode& child);
  JinjaArguments arguments_of(const JinjaNode& node, size_t from);

  Value lookup(const std::string& name) const;
  void assign(const std::string& name, Value value);

  std::vector<Scope> scopes_;
  std::map<std::string, const JinjaNode*> macros_;
  std::string out_;
  Status error_;
  int64_t budget_;
  int nesting_ = 0;
};

}  // namespace lockstep::data
