// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "data/jinja_ast.h"
#include "data/jinja_builtins.h"
#include "data/utf8.h"

namespace lockstep::data {
namespace {

Status want_text(const Value& value, std::string_view what) {
  if (value.is_string()) return ok_status();
  return invalid("{} is {}, not str", what, value.type());
}

// The optional argument as text; none when absent or None.
Result<std::optional<std::string>> optional_text(const JinjaArguments& arguments, size_t place,
                                                 std::string_view name) {
  const Value* value = arguments.get(place, name);
  if (value == nullptr || value->is_none()) return std::optional<std::string>();
  LOCKSTEP_RETURN_IF_ERROR(want_text(*value, name));
  return std::optional<std::string>(value->as_string());
}

Result<int64_t> optional_int(const JinjaArguments& arguments, size_t place, std::string_view name,
                             int64_t missing) {
  const Value* value = arguments.get(place, name);
  if (value == nullptr) return missing;
  if (!value->is_int()) return invalid("{} is {}, not int", name, value->type());
  return value->as_int();
}

Result<Value> texts(const std::vector<std::string>& parts) {
  if (parts.size() > kMaxTemplateList) return invalid("split into too many parts");
  Value::List items;
  items.reserve(parts.size());
  for (const std::string& part : parts) items.push_back(Value::string(part));
  return Value::list(std::move(items));
}

// split() without separator: at runs of white space, none at the ends. `limit` < 0: no limit.
std::vector<std::string> split_blanks(std::string_view text, int64_t limit) {
  std::vector<std::string> parts;
  text = strip(text, true, false);
  while (!text.empty() && parts.size() <= kMaxTemplateList) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) {
      parts.emplace_back(text);  // blanks at its end stay, as in Python
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_python_space(next_utf8(text, end).code)) {
      end += static_cast<size_t>(next_utf8(text, end).length_bytes);
    }
    parts.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), true, false);
  }
  return parts;
}

Result<Value> split(const std::string& text, const JinjaArguments& arguments, bool from_right) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"sep", "maxsplit"}));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto separator, optional_text(arguments, 0, "sep"));
  LOCKSTEP_ASSIGN_OR_RETURN(int64_t limit, optional_int(arguments, 1, "maxsplit", -1));
  if (!separator) {
    if (from_right && limit >= 0)
      return invalid("rsplit without separator but with a limit is not supported");
    return texts(split_blanks(text, limit));
  }
  if (separator->empty()) return invalid("split with an empty separator");
  std::vector<std::string> parts;
  std::string_view rest = text;
  while (limit != 0) {
    const size_t at = from_right ? rest.rfind(*separator) : rest.find(*separator);
    if (at == std::string_view::npos) break;
    if (parts.size() >= kMaxTemplateList) return invalid("split into too many parts");
    parts.emplace_back(from_right ? rest.substr(at + separator->size()) : rest.substr(0, at));
    rest = from_right ? rest.substr(0, at) : rest.substr(at + separator->size());
    if (limit > 0) --limit;
  }
  parts.emplace_back(rest);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return texts(parts);
}

std::vector<std::string> split_lines(std::string_view text) {
  // Python's line ends.
  const auto is_end = [](char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size() && lines.size() <= kMaxTemplateList;) {
    const Utf8Char c = next_utf8(text, i);
    const size_t next = i + static_cast<size_t>(c.length_bytes);
    if (is_end(c.code)) {
      lines.emplace_back(text.substr(begin, i - begin));
      begin = c.code == '\r' && next < text.size() && text[next] == '\n' ? next + 1 : next;
      i = begin;
    } else {
      i = next;
    }
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

// startswith and endswith: a text or a tuple of texts.
Result<Value> has_affix(const std::string& text, const JinjaArguments& arguments, bool at_start) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"prefix"}));
  if (arguments.positional.size() != 1) return invalid("startswith and endswith take one argument here");
  const Value& wanted = arguments.positional[0];
  Value::List options = wanted.is_tuple() ? wanted.as_list() : Value::List{wanted};
  for (const Value& option : options) {
    LOCKSTEP_RETURN_IF_ERROR(want_text(option, "the argument"));
    const std::string& affix = option.as_string();
    if (affix.size() > text.size()) continue;
    if (text.compare(at_start ? 0 : text.size() - affix.size(), affix.size(), affix) == 0) {
      return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

Result<Value> join(const std::string& separator, const JinjaArguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"iterable"}));
  if (arguments.positional.size() != 1) return invalid("join takes one argument");
  LOCKSTEP_ASSIGN_OR_RETURN(const Value::List items, jinja_iterate(arguments.positional[0]));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(want_text(items[i], "an item of join"));
    if (i > 0) out += separator;
    out += items[i].as_string();
    if (out.size() > kMaxTemplateText) break;
  }
  return jinja_text(std::move(out));
}

Result<Value> find_or_count(const std::string& name, const std::string& text,
                            const JinjaArguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"sub"}));
  const Value* wanted = arguments.get(0, "sub");
  if (wanted == nullptr) return invalid("{} takes one argument", name);
  LOCKSTEP_RETURN_IF_ERROR(want_text(*wanted, "the argument"));
  const std::string& part = wanted->as_string();
  if (name == "find") {
    const size_t at = text.find(part);
    if (at == std::string::npos) return Value::integer(-1);
    return Value::integer(utf8_length(std::string_view(text).substr(0, at)));
  }
  if (part.empty()) return Value::integer(utf8_length(text) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return Value::integer(count);
}

Result<Value> string_method(const std::string& name, const std::string& text,
                            const JinjaArguments& arguments) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    LOCKSTEP_RETURN_IF_ERROR(arguments.check({"chars"}));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto chars, optional_text(arguments, 0, "chars"));
    return Value::string(std::string(strip(text, name != "rstrip", name != "lstrip", chars)));
  }
  if (name == "split" || name == "rsplit") return split(text, arguments, name == "rsplit");
  if (name == "startswith" || name == "endswith") return has_affix(text, arguments, name == "startswith");
  if (name == "join") return join(text, arguments);
  if (name == "find" || name == "count") return find_or_count(name, text, arguments);
  if (name == "replace") {
    LOCKSTEP_RETURN_IF_ERROR(arguments.check({"old", "new", "count"}));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto from, optional_text(arguments, 0, "old"));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto to, optional_text(arguments, 1, "new"));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t count, optional_int(arguments, 2, "count", -1));
    if (!from || !to) return invalid("replace takes two texts");
    LOCKSTEP_ASSIGN_OR_RETURN(std::string result, replace_all(text, *from, *to, count));
    return Value::string(std::move(result));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value has, has_affix(text, arguments, name == "removeprefix"));
    if (!has.as_bool() || !arguments.positional[0].is_string()) return Value::string(text);
    const size_t size = arguments.positional[0].as_string().size();
    return Value::string(name == "removeprefix" ? text.substr(size) : text.substr(0, text.size() - size));
  }
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({}));
  if (name == "upper") return jinja_text(to_upper(text));
  if (name == "lower") return jinja_text(to_lower(text));
  if (name == "capitalize") return jinja_text(capitalize(text));
  if (name == "splitlines") return texts(split_lines(text));
  return invalid("str has no method '{}' here", name);
}

Result<Value> map_method(const std::string& name, const ValueMap& map, const JinjaArguments& arguments) {
  if (name == "get") {
    LOCKSTEP_RETURN_IF_ERROR(arguments.check({"key", "default"}));
    const Value* key = arguments.get(0, "key");
    if (key == nullptr) return invalid("get takes a key");
    const Value* found = key->is_string() ? map.find(key->as_string()) : nullptr;
    if (found != nullptr) return *found;
    const Value* missing = arguments.get(1, "default");
    return missing != nullptr ? *missing : Value::none();
  }
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({}));
  Value::List items;
  for (const auto& [key, value] : map.entries()) {
    if (name == "items") {
      items.push_back(Value::tuple({Value::string(key), value}));
    } else if (name == "keys") {
      items.push_back(Value::string(key));
    } else if (name == "values") {
      items.push_back(value);
    } else {
      break;
    }
  }
  if (name != "items" && name != "keys" && name != "values")
    return invalid("dict has no method '{}' here", name);
  return Value::list(std::move(items));
}

Result<Value> list_method(const std::string& name, const Value::List& items,
                          const JinjaArguments& arguments) {
  LOCKSTEP_RETURN_IF_ERROR(arguments.check({"value"}));
  const Value* wanted = arguments.get(0, "value");
  if (wanted == nullptr || (name != "index" && name != "count"))
    return invalid("list has no such method '{}'", name);
  const auto same = [&](const Value& item) { return equal(item, *wanted); };
  if (name == "count") return Value::integer(std::count_if(items.begin(), items.end(), same));
  const auto it = std::find_if(items.begin(), items.end(), same);
  if (it == items.end()) return invalid("index: the value is not in the list");
  return Value::integer(it - items.begin());
}

}  // namespace

const std::vector<std::string>& jinja_method_names() {
  static const std::vector<std::string> names = {
      "capitalize", "count", "cycle",      "endswith",   "find",         "get",          "index",   "items",
      "join",       "keys",  "lower",      "lstrip",     "removeprefix", "removesuffix", "replace", "rsplit",
      "rstrip",     "split", "splitlines", "startswith", "strip",        "upper",        "values"};
  return names;
}

const Value* JinjaArguments::get(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [keyword, value] : keywords) {
    if (keyword == name) return &value;
  }
  return nullptr;
}

Status JinjaArguments::check(const std::vector<std::string>& names) const {
  if (positional.size() > names.size()) return invalid("too many arguments ({} at most)", names.size());
  for (const auto& entry : keywords) {
    const auto it = std::find(names.begin(), names.end(), entry.first);
    if (it == names.end()) return invalid("the argument '{}' is not supported", entry.first);
    if (static_cast<size_t>(it - names.begin()) < positional.size()) {
      return invalid("the argument '{}' is given twice", entry.first);
    }
  }
  return ok_status();
}

Result<Value> jinja_method(const std::string& name, const Value& object, const JinjaArguments& arguments) {
  switch (object.kind()) {
    case Value::Kind::kString:
      return string_method(name, object.as_string(), arguments);
    case Value::Kind::kMap:
      return map_method(name, object.as_map(), arguments);
    case Value::Kind::kList:
      return list_method(name, object.as_list(), arguments);
    default:
      return invalid("{} has no method '{}'", object.type(), name);
  }
}

}  // namespace lockstep::data
