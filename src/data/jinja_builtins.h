// SPDX-License-Identifier: Apache-2.0
// What a template can do with values: operators, filters, tests, methods, with Python's and Jinja's rules.
// All are functions of their arguments; errors carry no line (the evaluator adds it).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "data/value.h"

namespace lockstep::data {

inline constexpr size_t kMaxTemplateText = size_t{64} << 20;  // bytes of one string
inline constexpr size_t kMaxTemplateList = 1000000;           // items of one list
inline constexpr int64_t kMaxTemplateWeight = 4000000;        // Value::weight() of one value

struct JinjaArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  // The argument by place or name, or null.
  const Value* get(size_t place, std::string_view name) const;
  // No more positional arguments than names, no other keyword.
  Status check(const std::vector<std::string>& names) const;
};

Result<Value> jinja_filter(const std::string& name, const Value& input, const JinjaArguments& arguments);
Result<bool> jinja_test(const std::string& name, const Value& input, const JinjaArguments& arguments);
Result<Value> jinja_method(const std::string& name, const Value& object, const JinjaArguments& arguments);

Result<Value> jinja_binary(std::string_view op, const Value& a, const Value& b);
Result<bool> jinja_compare(std::string_view op, const Value& a, const Value& b);
Result<Value> jinja_slice(const Value& object, const Value& start, const Value& stop, const Value& step);
// object[key]; undefined when it is not there.
Result<Value> jinja_item(const Value& object, const Value& key);
// The elements a loop sees: of a list, keys of a map, characters of a string, nothing of undefined.
Result<Value::List> jinja_iterate(const Value& value);
// A string result, refused beyond kMaxTemplateText.
Result<Value> jinja_text(std::string text);

// Unicode case mapping as Python's str.upper(), str.lower(), str.capitalize().
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
Result<std::string> replace_all(std::string_view text, std::string_view from, std::string_view to,
                                int64_t count);

}  // namespace lockstep::data
