// SPDX-License-Identifier: Apache-2.0
#include "data/jinja_evaluator.h"

#include <algorithm>

namespace lockstep::data {
namespace {

using Kind = JinjaNode::Kind;

constexpr int64_t kBudget = 4000000;  // nodes walked, plus a unit per 64 bytes of text or item of a list
constexpr int64_t kDeepPerUnit = 16;  // parts of values that are compared or searched for one unit
constexpr int kMaxNesting = 400;
constexpr int kMaxValueDepth = 150;
constexpr int64_t kMaxRange = 100000;

// How messages name an expression.
std::string describe(const JinjaNode& node) {
  switch (node.kind) {
    case Kind::kName:
      return node.text;
    case Kind::kAttribute:
      return describe(*node.children[0]) + "." + node.text;
    case Kind::kItem: {
      const JinjaNode& key = *node.children[1];
      return describe(*node.children[0]) + "[" +
             (key.kind == Kind::kConstant ? to_repr(key.constant) : "...") + "]";
    }
    default:
      return "the value";
  }
}

bool is_dict_method(const std::string& name) {
  static const std::vector<std::string> names = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                                 "pop",   "popitem", "setdefault", "update", "values"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<Value> make_range(const JinjaArguments& arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.keywords.empty())
    return invalid("range takes 1 to 3 ints");
  for (const Value& value : given) {
    if (!value.is_int()) return invalid("range takes ints, not {}", value.type());
    if (value.as_int() > INT32_MAX || value.as_int() < INT32_MIN) return invalid("range is too large");
  }
  const int64_t start = given.size() > 1 ? given[0].as_int() : 0;
  const int64_t stop = given.size() > 1 ? given[1].as_int() : given[0].as_int();
  const int64_t step = given.size() > 2 ? given[2].as_int() : 1;
  if (step == 0) return invalid("range with step 0");
  Value::List items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) return invalid("range is longer than {}", kMaxRange);
    items.push_back(Value::integer(i));
  }
  return Value::list(std::move(items));
}

Result<ValueMap> map_of_keywords(const JinjaArguments& arguments) {
  ValueMap map;
  if (arguments.positional.size() > 1) return invalid("too many arguments");
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].is_map())
      return invalid("the argument is {}, not dict", arguments.positional[0].type());
    map = arguments.positional[0].as_map();
  }
  for (const auto& [name, value] : arguments.keywords) {
    if (value.kind() == Value::Kind::kNamespace) return invalid("a namespace within another value");
    map.set(name, value);
  }
  return map;
}

// Filters that look only at the outermost list, map or text.
bool is_shallow_filter(const std::string& name) {
  static const std::vector<std::string> names = {"count", "d",    "default", "first",
                                                 "items", "last", "length",  "list"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_builtin(const std::string& name) {
  return name == "range" || name == "namespace" || name == "dict" || name == "raise_exception";
}

}  // namespace

JinjaEvaluator::JinjaEvaluator(const ValueMap& variables) : budget_(kBudget) {
  scopes_.emplace_back();
  for (const auto& entry : variables.entries()) scopes_[0].push_back(entry);
}

Result<std::string> JinjaEvaluator::render(const JinjaNode& root) {
  execute(root);
  if (failed()) return error_;
  return std::move(out_);
}

Value JinjaEvaluator::fail(const JinjaNode& node, const std::string& what) {
  if (!failed()) error_ = invalid("chat template line {}: {}", node.line, what);
  return {};
}

Value JinjaEvaluator::unwrap(const JinjaNode& node, Result<Value> result) {
  if (!result.ok()) return fail(node, result.status().message());
  return std::move(result).value();
}

bool JinjaEvaluator::charge(const JinjaNode& node, size_t work) {
  budget_ -= static_cast<int64_t>(work);
  if (budget_ < 0) fail(node, "the template does too much work");
  return !failed();
}

void JinjaEvaluator::charge_for(const JinjaNode& node, const Value& value) {
  if (value.is_string()) charge(node, value.as_string().size() / 64);
  if (value.is_list()) charge(node, value.as_list().size());
}

bool JinjaEvaluator::charge_deep(const JinjaNode& node, const Value& value, const JinjaArguments& arguments) {
  int64_t times = 1;
  for (const Value& argument : arguments.positional) times += argument.weight() - 1;
  for (const auto& [name, argument] : arguments.keywords) times += argument.weight() - 1;
  int64_t work = 0;
  if (__builtin_mul_overflow(value.weight(), times, &work)) work = INT64_MAX;
  return charge(node, static_cast<size_t>(std::min(work / kDeepPerUnit, kBudget + 1)));
}

std::string JinjaEvaluator::text_of(const JinjaNode& node, const Value& value) {
  return charge(node, static_cast<size_t>(value.weight())) ? to_str(value) : std::string();
}

Value JinjaEvaluator::lookup(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    for (const auto& [known, value] : *scope) {
      if (known == name) return value;
    }
  }
  return is_builtin(name) ? Value::function(name) : Value();
}

void JinjaEvaluator::assign(const std::string& name, Value value) {
  for (auto& [known, old] : scopes_.back()) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  scopes_.back().emplace_back(name, std::move(value));
}

JinjaEvaluator::Flow JinjaEvaluator::execute(const JinjaNode& node) {
  if (failed() || !charge(node, 1)) return Flow::kNext;
  if (++nesting_ > kMaxNesting) fail(node, "nested too deeply");
  Flow flow = Flow::kNext;
  switch (node.kind) {
    case Kind::kBlock:
      flow = execute_block(node);
      break;
    case Kind::kText:
      if (charge(node, node.text.size() / 64)) out_ += node.text;
      break;
    case Kind::kOutput: {
      const Value value = evaluate(*node.children[0]);
      if (value.kind() == Value::Kind::kFunction || value.kind() == Value::Kind::kNamespace) {
        fail(node, "a " + std::string(value.type()) + " cannot be printed");
      }
      if (!failed()) out_ += text_of(node, value);
      break;
    }
    case Kind::kIf:
      flow = execute_if(node);
      break;
    case Kind::kFor:
      execute_for(node);
      break;
    case Kind::kMacro:
      if (scopes_.size() > 1) {
        fail(node, "a macro within a loop or macro is not supported");
      } else {
        macros_[node.text] = &node;
        assign(node.text, Value::function(node.text));
      }
      break;
    case Kind::kBreak:
      flow = Flow::kBreak;
      break;
    case Kind::kContinue:
      flow = Flow::kContinue;
      break;
    default:
      execute_set(node);
      break;
  }
  if (out_.size() > kMaxTemplateText) fail(node, "the text grew too long");
  --nesting_;
  return flow;
}

JinjaEvaluator::Flow JinjaEvaluator::execute_block(const JinjaNode& node) {
  for (const JinjaNodePtr& child : node.children) {
    const Flow flow = execute(*child);
    if (failed()) break;
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

JinjaEvaluator::Flow JinjaEvaluator::execute_if(const JinjaNode& node) {
  size_t i = 0;
  for (; i + 1 < node.children.size(); i += 2) {
    const Value condition = evaluate(*node.children[i]);
    if (failed()) return Flow::kNext;
    if (condition.truthy()) return execute(*node.children[i + 1]);
  }
  return i < node.children.size() ? execute(*node.children[i]) : Flow::kNext;
}

bool JinjaEvaluator::bind(const JinjaNode& node, const Value& value) {
  if (node.names.size() == 1) {
    assign(node.names[0], value);
    return true;
  }
  const Result<Value::List> parts = jinja_iterate(value);
  if (!parts.ok() || parts.value().size() != node.names.size()) {
    fail(node, "cannot unpack " + std::string(value.type()) + " into " + std::to_string(node.names.size()) +
                   " names");
    return false;
  }
  for (size_t i = 0; i < node.names.size(); ++i) assign(node.names[i], parts.value()[i]);
  return true;
}

// The items of the loop, those that its "if" keeps.
Value::List JinjaEvaluator::loop_items(const JinjaNode& node) {
  const Value value = evaluate(*node.children[0]);
  if (failed()) return {};
  Result<Value::List> all = jinja_iterate(value);
  if (!all.ok()) {
    fail(node, all.status().message());
    return {};
  }
  charge(node, all.value().size());
  if (node.children[1] == nullptr) return std::move(all).value();
  Value::List kept;
  for (Value& item : all.value()) {
    scopes_.emplace_back();
    const bool bound = bind(node, item);
    const bool keep = bound && evaluate(*node.children[1]).truthy();
    scopes_.pop_back();
    if (failed()) return {};
    if (keep) kept.push_back(std::move(item));
  }
  return kept;
}

void JinjaEvaluator::execute_for(const JinjaNode& node) {
  const Value::List items = loop_items(node);
  if (failed()) return;
  if (items.empty()) {
    if (node.children[3] == nullptr) return;
    scopes_.emplace_back();
    execute(*node.children[3]);
    scopes_.pop_back();
    return;
  }
  const auto size = static_cast<int64_t>(items.size());
  for (int64_t i = 0; i < size && charge(node, 10); ++i) {
    scopes_.emplace_back();
    ValueMap loop;
    loop.set("index0", Value::integer(i));
    loop.set("index", Value::integer(i + 1));
    loop.set("first", Value::boolean(i == 0));
    loop.set("last", Value::boolean(i + 1 == size));
    loop.set("length", Value::integer(size));
    loop.set("revindex", Value::integer(size - i));
    loop.set("revindex0", Value::integer(size - i - 1));
    loop.set("depth", Value::integer(1));
    loop.set("depth0", Value::integer(0));
    if (i > 0) loop.set("previtem", items[static_cast<size_t>(i) - 1]);
    if (i + 1 < size) loop.set("nextitem", items[static_cast<size_t>(i) + 1]);
    assign("loop", Value::map(std::move(loop)));
    const bool bound = bind(node, items[static_cast<size_t>(i)]);
    const Flow flow = bound ? execute(*node.children[2]) : Flow::kNext;
    scopes_.pop_back();
    if (flow == Flow::kBreak) break;
  }
}

std::string JinjaEvaluator::captured(const JinjaNode& body) {
  std::string outer = std::move(out_);
  out_.clear();
  execute(body);
  std::string text = std::move(out_);
  out_ = std::move(outer);
  return text;
}

void JinjaEvaluator::execute_set(const JinjaNode& node) {
  if (node.kind == Kind::kSetBlock) {
    scopes_.emplace_back();
    std::string text = captured(*node.children[0]);
    scopes_.pop_back();
    assign(node.names[0], Value::string(std::move(text)));
    return;
  }
  const Value value = evaluate(*node.children[0]);
  if (failed()) return;
  if (node.kind == Kind::kSet) {
    bind(node, value);
    return;
  }
  const Value target = lookup(node.names[0]);
  if (target.kind() != Value::Kind::kNamespace) {
    fail(node,
         "cannot set '" + node.names[0] + "." + node.names[1] + "': '" + node.names[0] + "' is no namespace");
  } else if (value.kind() == Value::Kind::kNamespace) {
    fail(node, "a namespace within another value");
  } else {
    target.namespace_map().set(node.names[1], value);
  }
}

Value JinjaEvaluator::evaluate(const JinjaNode& node) {
  if (failed() || !charge(node, 1)) return {};
  if (++nesting_ > kMaxNesting) fail(node, "nested too deeply");
  Value value = failed() ? Value() : evaluate_kind(node);
  --nesting_;
  if (value.weight() > kMaxTemplateWeight) fail(node, "a value grew too large");
  return failed() ? Value() : value;
}

Value JinjaEvaluator::defined(const JinjaNode& child) {
  Value value = evaluate(child);
  if (!failed() && value.is_undefined()) return fail(child, describe(child) + " is undefined");
  return value;
}

Value JinjaEvaluator::evaluate_kind(const JinjaNode& node) {
  const auto child = [&](size_t i) -> const JinjaNode& { return *node.children[i]; };
  switch (node.kind) {
    case Kind::kConstant:
      return node.constant;
    case Kind::kName:
      return lookup(node.text);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return collection(node);
    case Kind::kAttribute:
      return attribute(node);
    case Kind::kItem: {
      const Value object = defined(child(0));
      const Value key = evaluate(child(1));
      return failed() ? Value() : unwrap(node, jinja_item(object, key));
    }
    case Kind::kSlice: {
      const Value object = defined(child(0));
      Value bounds[3];
      for (size_t i = 0; i < 3; ++i) {
        if (node.children[i + 1] != nullptr) bounds[i] = defined(child(i + 1));
      }
      if (failed()) return {};
      Value value = unwrap(node, jinja_slice(object, bounds[0], bounds[1], bounds[2]));
      charge_for(node, value);
      return value;
    }
    case Kind::kCall:
      return call(node);
    case Kind::kMethod:
      return method(node);
    case Kind::kFilter: {
      const Value input = evaluate(child(0));
      const JinjaArguments arguments = arguments_of(node, 1);
      if (failed()) return {};
      charge_for(node, input);
      if (!is_shallow_filter(node.text) && !charge_deep(node, input, arguments)) return {};
      Value value = unwrap(node, jinja_filter(node.text, input, arguments));
      charge_for(node, value);
      return value;
    }
    case Kind::kTest: {
      const Value input = evaluate(child(0));
      const JinjaArguments arguments = arguments_of(node, 1);
      if (failed() || (!arguments.positional.empty() && !charge_deep(node, input, arguments))) return {};
      const Result<bool> answer = jinja_test(node.text, input, arguments);
      if (!answer.ok()) return fail(node, answer.status().message());
      return Value::boolean(answer.value() != node.negated);
    }
    case Kind::kUnary:
      return unary(node);
    case Kind::kBinary: {
      const Value a = defined(child(0));
      const Value b = defined(child(1));
      if (failed()) return {};
      Value value = unwrap(node, jinja_binary(node.text, a, b));
      charge_for(node, value);
      return value;
    }
    case Kind::kAnd: {
      Value a = evaluate(child(0));
      return failed() || !a.truthy() ? a : evaluate(child(1));
    }
    case Kind::kOr: {
      Value a = evaluate(child(0));
      return failed() || a.truthy() ? a : evaluate(child(1));
    }
    case Kind::kCompare:
      return compare(node);
    case Kind::kConcat: {
      std::string text;
      for (const JinjaNodePtr& part : node.children) {
        text += text_of(*part, evaluate(*part));
        if (failed()) return {};
      }
      Value value = unwrap(node, jinja_text(std::move(text)));
      charge_for(node, value);
      return value;
    }
    case Kind::kConditional: {
      const Value condition = evaluate(child(1));
      if (failed()) return {};
      if (condition.truthy()) return evaluate(child(0));
      return node.children[2] == nullptr ? Value() : evaluate(child(2));
    }
    default:
      return fail(node, "unexpected statement");
  }
}

Value JinjaEvaluator::collection(const JinjaNode& node) {
  Value::List items;
  for (const JinjaNodePtr& child : node.children) {
    items.push_back(evaluate(*child));
    if (failed()) return {};
    if (items.back().kind() == Value::Kind::kNamespace)
      return fail(*child, "a namespace within another value");
    if (items.back().depth() >= kMaxValueDepth) return fail(*child, "a value nested too deeply");
  }
  if (node.kind == Kind::kList) return Value::list(std::move(items));
  if (node.kind == Kind::kTuple) return Value::tuple(std::move(items));
  ValueMap map;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (!items[i].is_string()) return fail(*node.children[i], "a key of a dict must be a str here");
    map.set(items[i].as_string(), items[i + 1]);
  }
  return Value::map(std::move(map));
}

Value JinjaEvaluator::attribute(const JinjaNode& node) {
  const Value object = defined(*node.children[0]);
  if (failed()) return {};
  if (object.is_map() && is_dict_method(node.text)) {
    return fail(node,
                "'" + node.text + "' is a method of dict here; write ['" + node.text + "'] for the key");
  }
  const Value* found = object.find(node.text);
  return found != nullptr ? *found : Value();
}

JinjaArguments JinjaEvaluator::arguments_of(const JinjaNode& node, size_t from) {
  JinjaArguments arguments;
  for (size_t i = from; i < node.children.size(); ++i)
    arguments.positional.push_back(evaluate(*node.children[i]));
  for (const auto& [name, child] : node.keywords) arguments.keywords.emplace_back(name, evaluate(*child));
  return arguments;
}

Value JinjaEvaluator::call(const JinjaNode& node) {
  const Value function = lookup(node.text);
  if (function.kind() != Value::Kind::kFunction) {
    return fail(node, "'" + node.text + "' is " + (function.is_undefined() ? "not defined" : "no function") +
                          (node.text == "strftime_now" ? " (a prompt must not depend on the day)" : ""));
  }
  const std::string& name = function.function_name();
  const JinjaArguments arguments = arguments_of(node, 0);
  if (failed()) return {};
  if (const auto macro = macros_.find(name); macro != macros_.end()) {
    return call_macro(node, *macro->second, arguments);
  }
  if (name == "raise_exception") {
    return fail(node,
                "the template refuses these messages: " +
                    (arguments.positional.empty() ? std::string() : text_of(node, arguments.positional[0])));
  }
  if (name == "range") {
    Value value = unwrap(node, make_range(arguments));
    charge_for(node, value);
    return value;
  }
  Result<ValueMap> map = map_of_keywords(arguments);
  if (!map.ok()) return fail(node, map.status().message());
  for (const auto& entry : map.value().entries()) {
    if (entry.second.depth() >= kMaxValueDepth) return fail(node, "a value nested too deeply");
  }
  return name == "namespace" ? Value::namespace_of(std::move(map).value())
                             : Value::map(std::move(map).value());
}

Value JinjaEvaluator::call_macro(const JinjaNode& node, const JinjaNode& macro,
                                 const JinjaArguments& arguments) {
  if (const Status status = arguments.check(macro.names); !status.ok()) {
    return fail(node, macro.text + ": " + status.message());
  }
  // A macro sees the template's variables and its own, not those of the place that calls it.
  std::vector<Scope> outer(std::make_move_iterator(scopes_.begin() + 1),
                           std::make_move_iterator(scopes_.end()));
  scopes_.resize(1);
  scopes_.emplace_back();
  const size_t without_default = macro.names.size() - (macro.children.size() - 1);
  for (size_t i = 0; i < macro.names.size(); ++i) {
    const Value* given = arguments.get(i, macro.names[i]);
    if (given != nullptr) {
      assign(macro.names[i], *given);
    } else {
      assign(macro.names[i],
             i < without_default ? Value() : evaluate(*macro.children[1 + i - without_default]));
    }
  }
  std::string text = captured(*macro.children[0]);
  scopes_.resize(1);
  for (Scope& scope : outer) scopes_.push_back(std::move(scope));
  return Value::string(std::move(text));
}

Value JinjaEvaluator::method(const JinjaNode& node) {
  const Value object = defined(*node.children[0]);
  const JinjaArguments arguments = arguments_of(node, 1);
  if (failed()) return {};
  if (node.text == "cycle") {
    const Value* index = node.children[0]->text == "loop" ? object.find("index0") : nullptr;
    if (index == nullptr || arguments.positional.empty()) return fail(node, "cycle is a method of loop");
    return arguments.positional[static_cast<size_t>(index->as_int()) % arguments.positional.size()];
  }
  charge_for(node, object);
  if (!object.is_map() && !charge_deep(node, object, arguments)) return {};
  Value value = unwrap(node, jinja_method(node.text, object, arguments));
  charge_for(node, value);
  return value;
}

Value JinjaEvaluator::compare(const JinjaNode& node) {
  Value left = evaluate(*node.children[0]);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    const std::string& op = node.operators[i];
    Value right = evaluate(*node.children[i + 1]);
    if (failed()) return {};
    charge_for(node, right);
    const bool search = op == "in" || op == "not in";
    const Value& walked = search || left.weight() > right.weight() ? right : left;
    JinjaArguments sought;
    if (search && right.is_string()) sought.positional.push_back(left);
    if (!charge_deep(node, walked, sought)) return {};
    const bool ordering = op[0] == '<' || op[0] == '>';
    if (ordering && (left.is_undefined() || right.is_undefined())) {
      return fail(node, describe(*node.children[left.is_undefined() ? i : i + 1]) + " is undefined");
    }
    const Result<bool> answer = jinja_compare(op, left, right);
    if (!answer.ok()) return fail(node, answer.status().message());
    if (!answer.value()) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value JinjaEvaluator::unary(const JinjaNode& node) {
  if (node.text == "not") return Value::boolean(!evaluate(*node.children[0]).truthy());
  const Value value = defined(*node.children[0]);
  if (failed()) return {};
  if (value.is_float()) return Value::real(node.text == "-" ? -value.as_float() : value.as_float());
  // 0 - x and 0 + x are what - and + do to ints and bools, with the check for overflow.
  return unwrap(node, jinja_binary(node.text, Value::integer(0), value));
}

}  // namespace lockstep::data
