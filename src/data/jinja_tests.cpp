// SPDX-License-Identifier: Apache-2.0
// "x is ...".
#include <algorithm>
#include <map>

#include "data/jinja_ast.h"
#include "data/jinja_builtins.h"

namespace lockstep::data {
namespace {

bool is_number(const Value& v) {
  return v.is_int() || v.is_float() || v.is_bool();
}
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_list() || v.is_map() || v.is_undefined();
}

// Tests of one value alone.
const std::map<std::string, bool (*)(const Value&)>& simple_tests() {
  static const std::map<std::string, bool (*)(const Value&)> table = {
      {"boolean", [](const Value& v) { return v.is_bool(); }},
      {"callable", [](const Value& v) { return v.kind() == Value::Kind::kFunction; }},
      {"defined", [](const Value& v) { return !v.is_undefined(); }},
      {"false", [](const Value& v) { return v.is_bool() && !v.as_bool(); }},
      {"float", [](const Value& v) { return v.is_float(); }},
      {"integer", [](const Value& v) { return v.is_int(); }},
      {"iterable", is_sequence},
      {"lower",
       [](const Value& v) { return to_lower(to_str(v)) == to_str(v) && to_upper(to_str(v)) != to_str(v); }},
      {"mapping", [](const Value& v) { return v.is_map(); }},
      {"none", [](const Value& v) { return v.is_none(); }},
      {"number", is_number},
      {"sequence", is_sequence},
      {"string", [](const Value& v) { return v.is_string(); }},
      {"true", [](const Value& v) { return v.is_bool() && v.as_bool(); }},
      {"undefined", [](const Value& v) { return v.is_undefined(); }},
      {"upper",
       [](const Value& v) { return to_upper(to_str(v)) == to_str(v) && to_lower(to_str(v)) != to_str(v); }},
  };
  return table;
}

// Tests that compare with one argument, and their operator.
const std::map<std::string, std::string>& comparing_tests() {
  static const std::map<std::string, std::string> table = {
      {"eq", "=="}, {"equalto", "=="},    {"ne", "!="}, {"lt", "<"},  {"lessthan", "<"}, {"le", "<="},
      {"gt", ">"},  {"greaterthan", ">"}, {"ge", ">="}, {"in", "in"}, {"==", "=="},      {"!=", "!="},
      {"<", "<"},   {"<=", "<="},         {">", ">"},   {">=", ">="}};
  return table;
}

Result<int64_t> whole(const Value& value) {
  if (value.is_int()) return value.as_int();
  if (value.is_bool()) return int64_t{value.as_bool() ? 1 : 0};
  return invalid("{} is no int", value.type());
}

bool same_object(const Value& a, const Value& b) {
  const bool constant = a.is_none() || a.is_bool() || a.is_undefined();
  return constant && a.kind() == b.kind() && equal(a, b);
}

}  // namespace

const std::vector<std::string>& jinja_test_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out = {"divisibleby", "even", "odd", "sameas"};
    for (const auto& entry : simple_tests()) out.push_back(entry.first);
    for (const auto& entry : comparing_tests()) out.push_back(entry.first);
    std::sort(out.begin(), out.end());
    return out;
  }();
  return names;
}

Result<bool> jinja_test(const std::string& name, const Value& input, const JinjaArguments& arguments) {
  if (!arguments.keywords.empty()) return invalid("a test with named arguments is not supported");
  if (const auto it = simple_tests().find(name); it != simple_tests().end()) {
    LOCKSTEP_RETURN_IF_ERROR(arguments.check({}));
    return it->second(input);
  }
  if (name == "odd" || name == "even") {
    LOCKSTEP_RETURN_IF_ERROR(arguments.check({}));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t value, whole(input));
    return (value % 2 != 0) == (name == "odd");
  }
  if (arguments.positional.size() != 1) return invalid("the test takes one argument");
  const Value& other = arguments.positional[0];
  if (const auto it = comparing_tests().find(name); it != comparing_tests().end()) {
    return jinja_compare(it->second, input, other);
  }
  if (name == "sameas") return same_object(input, other);
  if (name == "divisibleby") {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t value, whole(input));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t by, whole(other));
    if (by == 0) return invalid("division by zero");
    return by == -1 || value % by == 0;
  }
  return invalid("test '{}' is not supported", name);
}

}  // namespace lockstep::data
