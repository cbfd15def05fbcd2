// SPDX-License-Identifier: Apache-2.0
// Filters and tests.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "data/jinja_ast.h"
#include "data/jinja_builtins.h"
#include "data/utf8.h"

namespace lockstep::data {
namespace {

using Arguments = JinjaArguments;
using Filter = std::function<Result<Value>(const Value&, const Arguments&)>;

bool flag(const Arguments& arguments, size_t place, std::string_view name, bool missing = false) {
  const Value* value = arguments.get(place, name);
  return value == nullptr ? missing : value->truthy();
}

// The optional argument as str() gives it.
std::string text(const Arguments& arguments, size_t place, std::string_view name, std::string_view missing) {
  const Value* value = arguments.get(place, name);
  return value == nullptr ? std::string(missing) : to_str(*value);
}

// "a.b.0" of an item, each part as item[part].
Result<Value> attribute_of(Value item, const std::string& path) {
  for (size_t at = 0; at <= path.size();) {
    const size_t dot = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, dot - at);
    int64_t index = 0;
    const char* end = part.data() + part.size();
    const auto number = std::from_chars(part.data(), end, index);
    const bool is_index = number.ec == std::errc() && number.ptr == end && part[0] != '-';
    if (item.is_undefined()) return invalid("'{}' of an undefined value", part);
    LOCKSTEP_ASSIGN_OR_RETURN(item, jinja_item(item, is_index ? Value::integer(index) : Value::string(part)));
    at = dot + 1;
  }
  return item;
}

Result<Value> filter_default(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"default_value", "boolean"}));
  if (!input.is_undefined() && (input.truthy() || !flag(arguments, 1, "boolean"))) return input;
  const Value* value = arguments.get(0, "default_value");
  return value == nullptr ? Value::string("") : *value;
}

Result<Value> filter_trim(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"chars"}));
  const Value* chars = arguments.get(0, "chars");
  if (chars != nullptr && !chars->is_none() && !chars->is_string()) return invalid("trim wants a str");
  const std::string value = to_str(input);
  const bool given = chars != nullptr && chars->is_string();
  return Value::string(std::string(
      strip(value, true, true, given ? std::optional<std::string_view>(chars->as_string()) : std::nullopt)));
}

Result<Value> filter_length(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({}));
  if (input.is_undefined()) return Value::integer(0);
  if (input.is_string()) return Value::integer(utf8_length(input.as_string()));
  if (input.is_list()) return Value::integer(static_cast<int64_t>(input.as_list().size()));
  if (input.is_map()) return Value::integer(static_cast<int64_t>(input.as_map().size()));
  return invalid("{} has no length", input.type());
}

Result<Value> filter_join(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"d", "attribute"}));
  const std::string separator = text(arguments, 0, "d", "");
  const Value* attribute = arguments.get(1, "attribute");
  LOCKSTEP_ASSIGN_OR_RETURN(const Value::List items, jinja_iterate(input));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (attribute != nullptr) {
      LOCKSTEP_ASSIGN_OR_RETURN(item, attribute_of(item, to_str(*attribute)));
    }
    if (i > 0) out += separator;
    out += to_str(item);
    if (out.size() > kMaxTemplateText) break;
  }
  return jinja_text(std::move(out));
}

Result<Value> filter_replace(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"old", "new", "count"}));
  const Value* count = arguments.get(2, "count");
  if (arguments.get(0, "old") == nullptr || arguments.get(1, "new") == nullptr) {
    return invalid("replace wants two texts");
  }
  if (count != nullptr && !count->is_none() && !count->is_int()) return invalid("count is no int");
  const int64_t limit = count != nullptr && count->is_int() ? count->as_int() : -1;
  LOCKSTEP_ASSIGN_OR_RETURN(std::string out, replace_all(to_str(input), text(arguments, 0, "old", ""),
                                                         text(arguments, 1, "new", ""), limit));
  return Value::string(std::move(out));
}

Result<Value> end_of(const Value& input, const Arguments& arguments, bool first) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({}));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value::List items, jinja_iterate(input));
  if (items.empty()) return Value();
  return first ? items.front() : items.back();
}

Result<Value> filter_items(const Value& input, const Arguments& arguments) {
  if (input.is_undefined()) return Value::list({});
  if (!input.is_map()) return invalid("items of {}", input.type());
  return jinja_method("items", input, arguments);
}

Result<Value> filter_int(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"default"}));
  const Value* missing = arguments.get(0, "default");
  const Value otherwise = missing == nullptr ? Value::integer(0) : *missing;
  if (input.is_int()) return input;
  if (input.is_bool()) return Value::integer(input.as_bool() ? 1 : 0);
  double number = 0;
  if (input.is_string()) {
    const std::string spelled(strip(input.as_string(), true, true));
    const char* begin = spelled.c_str() + (spelled.substr(0, 1) == "+" ? 1 : 0);
    const char* end = spelled.c_str() + spelled.size();
    int64_t whole = 0;
    const auto as_int = std::from_chars(begin, end, whole);
    if (as_int.ec == std::errc() && as_int.ptr == end) return Value::integer(whole);
    const auto as_float = std::from_chars(begin, end, number);
    if (as_float.ec != std::errc() || as_float.ptr != end) return otherwise;
  } else if (input.is_float()) {
    number = input.as_float();
  } else {
    return otherwise;
  }
  if (!(std::fabs(number) < 0x1p62)) return otherwise;
  return Value::integer(static_cast<int64_t>(number));
}

Result<Value> filter_float(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"default"}));
  const Value* missing = arguments.get(0, "default");
  const Value otherwise = missing == nullptr ? Value::real(0) : *missing;
  if (input.is_float()) return input;
  if (input.is_int()) return Value::real(static_cast<double>(input.as_int()));
  if (input.is_bool()) return Value::real(input.as_bool() ? 1 : 0);
  if (!input.is_string()) return otherwise;
  const std::string spelled(strip(input.as_string(), true, true));
  double number = 0;
  const char* begin = spelled.c_str() + (spelled.substr(0, 1) == "+" ? 1 : 0);
  const char* end = spelled.c_str() + spelled.size();
  const auto result = std::from_chars(begin, end, number);
  return result.ec == std::errc() && result.ptr == end ? Value::real(number) : otherwise;
}

Result<Value> filter_abs(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({}));
  if (input.is_float()) return Value::real(std::fabs(input.as_float()));
  if (input.is_bool()) return Value::integer(input.as_bool() ? 1 : 0);
  if (!input.is_int() || input.as_int() == INT64_MIN) return invalid("abs of {}", input.type());
  return Value::integer(input.as_int() < 0 ? -input.as_int() : input.as_int());
}

// What may stand in JSON.
bool serialisable(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNamespace:
    case Value::Kind::kFunction:
      return false;
    case Value::Kind::kList:
      return std::all_of(value.as_list().begin(), value.as_list().end(), serialisable);
    case Value::Kind::kMap:
      return std::all_of(value.as_map().entries().begin(), value.as_map().entries().end(),
                         [](const auto& entry) { return serialisable(entry.second); });
    default:
      return true;
  }
}

Result<Value> filter_tojson(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"ensure_ascii", "indent", "separators", "sort_keys"}));
  if (!serialisable(input)) return invalid("tojson of {}: it is or holds no JSON value", input.type());
  JsonStyle style;
  style.max_bytes = kMaxTemplateText;
  style.ensure_ascii = flag(arguments, 0, "ensure_ascii");
  style.sort_keys = flag(arguments, 3, "sort_keys");
  if (const Value* indent = arguments.get(1, "indent"); indent != nullptr && !indent->is_none()) {
    if (!indent->is_int() || indent->as_int() < 0 || indent->as_int() > 64)
      return invalid("indent of tojson");
    style.indent = static_cast<int>(indent->as_int());
    style.item_separator.assign(1, ',');
  }
  if (const Value* both = arguments.get(2, "separators"); both != nullptr && !both->is_none()) {
    const bool pair = both->is_list() && both->as_list().size() == 2 && both->as_list()[0].is_string() &&
                      both->as_list()[1].is_string();
    if (!pair) return invalid("separators of tojson are not two texts");
    style.item_separator = both->as_list()[0].as_string();
    style.key_separator = both->as_list()[1].as_string();
  }
  return jinja_text(to_json(input, style));
}

Result<Value> filter_indent(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"width", "first", "blank"}));
  const Value* width = arguments.get(0, "width");
  std::string by(4, ' ');
  if (width != nullptr && width->is_string()) {
    by = width->as_string();
  } else if (width != nullptr) {
    if (!width->is_int() || width->as_int() > 1000) return invalid("width of indent");
    by.assign(static_cast<size_t>(std::max<int64_t>(width->as_int(), 0)), ' ');
  }
  const std::string source = to_str(input);
  std::string out = flag(arguments, 1, "first") ? by : "";
  // Every line end is one for Jinja's str.splitlines(); here only \n is (templates indent their own text).
  for (size_t at = 0; at < source.size() && out.size() <= kMaxTemplateText;) {
    const size_t end = std::min(source.find('\n', at), source.size());
    if (at > 0 && (end > at || flag(arguments, 2, "blank"))) out += by;
    out.append(source, at, end - at);
    if (end < source.size()) out += '\n';
    at = end + 1;
  }
  return jinja_text(std::move(out));
}

// The key of sort and unique: texts without regard to case unless asked.
Result<Value> sort_key(const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) {
    LOCKSTEP_ASSIGN_OR_RETURN(key, attribute_of(item, to_str(*attribute)));
  }
  return key.is_string() && !case_sensitive ? Value::string(to_lower(key.as_string())) : key;
}

Result<Value> sorted(std::vector<std::pair<Value, Value>> keyed, bool reverse) {
  for (size_t i = 1; i < keyed.size(); ++i) {  // every pair must be comparable before std::sort may ask
    LOCKSTEP_ASSIGN_OR_RETURN([[maybe_unused]] const bool less,
                              jinja_compare("<", keyed[0].first, keyed[i].first));
  }
  const auto less = [&](const auto& a, const auto& b) {
    return jinja_compare("<", reverse ? b.first : a.first, reverse ? a.first : b.first).value();
  };
  std::stable_sort(keyed.begin(), keyed.end(), less);
  Value::List items;
  for (auto& entry : keyed) items.push_back(std::move(entry.second));
  return Value::list(std::move(items));
}

Result<Value> filter_sort(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"reverse", "case_sensitive", "attribute"}));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value::List items, jinja_iterate(input));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        Value key, sort_key(item, arguments.get(2, "attribute"), flag(arguments, 1, "case_sensitive")));
    if (key.is_float() && std::isnan(key.as_float())) return invalid("sort of a NaN");
    keyed.emplace_back(std::move(key), item);
  }
  return sorted(std::move(keyed), flag(arguments, 0, "reverse"));
}

Result<Value> filter_dictsort(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"case_sensitive", "by", "reverse"}));
  if (!input.is_map()) return invalid("dictsort of {}", input.type());
  const std::string by = text(arguments, 1, "by", "key");
  if (by != "key" && by != "value") return invalid("dictsort by '{}'", by);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : input.as_map().entries()) {
    Value item = Value::tuple({Value::string(key), value});
    LOCKSTEP_ASSIGN_OR_RETURN(Value sort_by, sort_key(by == "key" ? Value::string(key) : value, nullptr,
                                                      flag(arguments, 0, "case_sensitive")));
    if (sort_by.is_float() && std::isnan(sort_by.as_float())) return invalid("dictsort of a NaN");
    keyed.emplace_back(std::move(sort_by), std::move(item));
  }
  return sorted(std::move(keyed), flag(arguments, 2, "reverse"));
}

Result<Value> filter_unique(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"case_sensitive", "attribute"}));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value::List items, jinja_iterate(input));
  if (items.size() > 10000) return invalid("unique of more than 10000 items is not supported");
  Value::List keys;
  Value::List out;
  for (const Value& item : items) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        Value key, sort_key(item, arguments.get(1, "attribute"), flag(arguments, 0, "case_sensitive")));
    const bool seen = std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return equal(k, key); });
    if (seen) continue;
    keys.push_back(std::move(key));
    out.push_back(item);
  }
  return Value::list(std::move(out));
}

Result<Value> filter_reverse(const Value& input, const Arguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({}));
  if (input.is_string() || input.is_list()) return jinja_slice(input, Value(), Value(), Value::integer(-1));
  LOCKSTEP_ASSIGN_OR_RETURN(Value::List items, jinja_iterate(input));
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

bool is_one_of(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// map(attribute=...) or map("filter", arguments...).
Result<Value> filter_map(const Value& input, const Arguments& arguments) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value::List items, jinja_iterate(input));
  Value::List out;
  if (arguments.positional.empty()) {
    const Value* path = arguments.get(0, "attribute");
    const Value* missing = arguments.get(1, "default");
    for (const auto& entry : arguments.keywords) {
      if (entry.first != "attribute" && entry.first != "default")
        return invalid("map: argument '{}'", entry.first);
    }
    if (path == nullptr) return invalid("map wants a filter or attribute=");
    for (const Value& item : items) {
      LOCKSTEP_ASSIGN_OR_RETURN(Value value, attribute_of(item, to_str(*path)));
      if (value.is_undefined() && missing != nullptr) value = *missing;
      out.push_back(std::move(value));
    }
    return Value::list(std::move(out));
  }
  const std::string name = to_str(arguments.positional[0]);
  if (!is_one_of(name, jinja_filter_names())) return invalid("map: filter '{}' is not supported", name);
  if (is_one_of(name, {"map", "select", "reject", "selectattr", "rejectattr"})) {
    return invalid("map: filter '{}' within map is not supported", name);
  }
  Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.keywords};
  int64_t weight = 0;
  for (const Value& item : items) {
    LOCKSTEP_ASSIGN_OR_RETURN(Value value, jinja_filter(name, item, rest));
    weight += value.weight();
    if (weight > kMaxTemplateWeight) return invalid("map: the values grew too large");
    out.push_back(std::move(value));
  }
  return Value::list(std::move(out));
}

// select, reject and their attr forms: keeps the items whose test has the answer `wanted`.
Result<Value> choose(const Value& input, const Arguments& arguments, bool wanted, bool by_attribute) {
  const size_t skip = by_attribute ? 1 : 0;
  if (arguments.positional.size() < skip || !arguments.keywords.empty()) return invalid("wrong arguments");
  LOCKSTEP_ASSIGN_OR_RETURN(const Value::List items, jinja_iterate(input));
  std::string test;
  Arguments rest;
  if (arguments.positional.size() > skip) {
    test = to_str(arguments.positional[skip]);
    if (!is_one_of(test, jinja_test_names())) return invalid("test '{}' is not supported", test);
    rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(skip) + 1,
                           arguments.positional.end());
  }
  Value::List out;
  for (const Value& item : items) {
    Value subject = item;
    if (by_attribute) {
      LOCKSTEP_ASSIGN_OR_RETURN(subject, attribute_of(item, to_str(arguments.positional[0])));
    }
    bool answer = subject.truthy();
    if (!test.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(answer, jinja_test(test, subject, rest));
    }
    if (answer == wanted) out.push_back(item);
  }
  return Value::list(std::move(out));
}

// A filter of str() without arguments.
Filter of_text(std::string (*function)(std::string_view)) {
  return [function](const Value& input, const Arguments& arguments) -> Result<Value> {
    LOCKSTEP_RETURN_IF_ERROR(arguments.check({}));
    return jinja_text(function(to_str(input)));
  };
}

std::string same_text(std::string_view value) {
  return std::string(value);
}

const std::vector<std::pair<std::string, Filter>>& filters() {
  static const std::vector<std::pair<std::string, Filter>> table = {
      {"abs", filter_abs},
      {"capitalize", of_text(capitalize)},
      {"count", filter_length},
      {"d", filter_default},
      {"default", filter_default},
      {"dictsort", filter_dictsort},
      {"first", [](const Value& v, const Arguments& a) { return end_of(v, a, true); }},
      {"float", filter_float},
      {"indent", filter_indent},
      {"int", filter_int},
      {"items", filter_items},
      {"join", filter_join},
      {"last", [](const Value& v, const Arguments& a) { return end_of(v, a, false); }},
      {"length", filter_length},
      {"list",
       [](const Value& v, const Arguments& a) -> Result<Value> {
         LOCKSTEP_RETURN_IF_ERROR(a.check({}));
         LOCKSTEP_ASSIGN_OR_RETURN(Value::List items, jinja_iterate(v));
         return Value::list(std::move(items));
       }},
      {"lower", of_text(to_lower)},
      {"map", filter_map},
      {"reject", [](const Value& v, const Arguments& a) { return choose(v, a, false, false); }},
      {"rejectattr", [](const Value& v, const Arguments& a) { return choose(v, a, false, true); }},
      {"replace", filter_replace},
      {"reverse", filter_reverse},
      {"safe", of_text(same_text)},
      {"select", [](const Value& v, const Arguments& a) { return choose(v, a, true, false); }},
      {"selectattr", [](const Value& v, const Arguments& a) { return choose(v, a, true, true); }},
      {"sort", filter_sort},
      {"string", of_text(same_text)},
      {"tojson", filter_tojson},
      {"trim", filter_trim},
      {"unique", filter_unique},
      {"upper", of_text(to_upper)},
  };
  return table;
}

}  // namespace

const std::vector<std::string>& jinja_filter_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const auto& entry : filters()) out.push_back(entry.first);
    return out;
  }();
  return names;
}

Result<Value> jinja_filter(const std::string& name, const Value& input, const JinjaArguments& arguments) {
  for (const auto& [known, filter] : filters()) {
    if (known == name) return filter(input, arguments);
  }
  return invalid("filter '{}' is not supported", name);
}

}  // namespace lockstep::data
