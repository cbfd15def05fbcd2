// SPDX-License-Identifier: Apache-2.0
#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/stringoptions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "data/jinja_builtins.h"
#include "data/utf8.h"

namespace lockstep::data {
namespace {

bool is_whole(const Value& v) {
  return v.is_int() || v.is_bool();
}
bool is_number(const Value& v) {
  return is_whole(v) || v.is_float();
}
int64_t whole(const Value& v) {
  return v.is_bool() ? (v.as_bool() ? 1 : 0) : v.as_int();
}
double real(const Value& v) {
  return v.is_float() ? v.as_float() : static_cast<double>(whole(v));
}

Status wrong_types(std::string_view op, const Value& a, const Value& b) {
  return invalid("'{}' does not go with {} and {}", op, a.type(), b.type());
}

// Python's // and %: the quotient is rounded down, the remainder has the divisor's sign.
Result<Value> divide_whole(std::string_view op, int64_t a, int64_t b) {
  if (b == 0) return invalid("division by zero");
  if (b == -1) {
    if (op == "%") return Value::integer(0);
    if (a == std::numeric_limits<int64_t>::min()) return invalid("integer out of range");
    return Value::integer(-a);
  }
  int64_t quotient = a / b;
  int64_t remainder = a % b;
  if (remainder != 0 && ((remainder < 0) != (b < 0))) {
    --quotient;
    remainder += b;
  }
  return Value::integer(op == "%" ? remainder : quotient);
}

Result<Value> whole_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return invalid("a negative power is not supported");
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return invalid("integer out of range");
    if (result == 0 || (result == 1 && base == 1)) break;
    if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  }
  return Value::integer(result);
}

Result<Value> whole_arithmetic(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    return whole_power(a, b);
  } else {
    return divide_whole(op, a, b);
  }
  if (overflow) return invalid("integer out of range");
  return Value::integer(result);
}

Result<Value> real_arithmetic(std::string_view op, double a, double b) {
  if (op == "+") return Value::real(a + b);
  if (op == "-") return Value::real(a - b);
  if (op == "*") return Value::real(a * b);
  if (op == "/") {
    if (b == 0) return invalid("division by zero");
    return Value::real(a / b);
  }
  return invalid("'{}' of floats is not supported", op);
}

Result<Value> repeat(const Value& sequence, int64_t count) {
  const size_t size = sequence.is_string() ? sequence.as_string().size() : sequence.as_list().size();
  const size_t limit = sequence.is_string() ? kMaxTemplateText : kMaxTemplateList;
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (times > 0 && size > limit / times) return invalid("the result of '*' is too large");
  if (sequence.is_string()) {
    if (size == 1) return Value::string(std::string(times, sequence.as_string()[0]));
    std::string text;
    text.reserve(size * times);
    for (size_t i = 0; i < times && size > 0; ++i) text += sequence.as_string();
    return Value::string(std::move(text));
  }
  Value::List items;
  for (size_t i = 0; i < times && size > 0; ++i) {
    items.insert(items.end(), sequence.as_list().begin(), sequence.as_list().end());
  }
  return sequence.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Result<bool> contains(const Value& item, const Value& container) {
  switch (container.kind()) {
    case Value::Kind::kUndefined:
      return false;
    case Value::Kind::kString:
      if (!item.is_string()) return invalid("'in' a str wants a str on the left, not {}", item.type());
      return container.as_string().find(item.as_string()) != std::string::npos;
    case Value::Kind::kMap:
      return item.is_string() && container.find(item.as_string()) != nullptr;
    case Value::Kind::kList: {
      const Value::List& items = container.as_list();
      return std::any_of(items.begin(), items.end(), [&](const Value& other) { return equal(item, other); });
    }
    default:
      return invalid("'in' does not go with {}", container.type());
  }
}

using CaseFunction = void (*)(const char*, uint32_t, icu::StringPiece, icu::ByteSink&, icu::Edits*,
                              UErrorCode&);

std::string map_case(CaseFunction function, std::string_view text) {
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode error = U_ZERO_ERROR;
  function("", 0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr, error);
  LOCKSTEP_CHECK(U_SUCCESS(error), "case mapping failed");
  return out;
}

// A bound of a slice, clamped as Python does.
int64_t slice_bound(const Value& value, int64_t size, int64_t missing, int64_t step) {
  if (value.is_none() || value.is_undefined()) return missing;
  int64_t bound = whole(value);
  if (bound < 0) bound = std::max<int64_t>(bound, -size - 1) + size;
  return step > 0 ? std::clamp<int64_t>(bound, 0, size) : std::clamp<int64_t>(bound, -1, size - 1);
}

}  // namespace

std::string to_upper(std::string_view text) {
  return map_case(icu::CaseMap::utf8ToUpper, text);
}
std::string to_lower(std::string_view text) {
  return map_case(icu::CaseMap::utf8ToLower, text);
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const auto first = static_cast<size_t>(next_utf8(text, 0).length_bytes);
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode error = U_ZERO_ERROR;
  icu::CaseMap::utf8ToTitle("", U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT, nullptr,
                            icu::StringPiece(text.data(), static_cast<int32_t>(first)), sink, nullptr, error);
  LOCKSTEP_CHECK(U_SUCCESS(error), "case mapping failed");
  return out + to_lower(text.substr(first));
}

Result<Value> jinja_text(std::string text) {
  if (text.size() > kMaxTemplateText) return invalid("a text grew beyond {} bytes", kMaxTemplateText);
  return Value::string(std::move(text));
}

Result<std::string> replace_all(std::string_view text, std::string_view from, std::string_view to,
                                int64_t count) {
  std::string out;
  const auto put = [&](std::string_view piece) {
    out += piece;
    return out.size() <= kMaxTemplateText;
  };
  const Status too_large = invalid("a text grew beyond {} bytes", kMaxTemplateText);
  if (from.empty()) {  // between all characters and at both ends
    const std::vector<size_t> offsets = utf8_offsets(text);
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (count != 0 && !put(to)) return too_large;
      if (count > 0) --count;
      if (i + 1 < offsets.size() && !put(text.substr(offsets[i], offsets[i + 1] - offsets[i])))
        return too_large;
    }
    return out;
  }
  size_t at = 0;
  while (count != 0) {
    const size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    if (!put(text.substr(at, found - at)) || !put(to)) return too_large;
    at = found + from.size();
    if (count > 0) --count;
  }
  if (!put(text.substr(at))) return too_large;
  return out;
}

Result<Value> jinja_binary(std::string_view op, const Value& a, const Value& b) {
  if (is_number(a) && is_number(b)) {
    if (op == "/" || !is_whole(a) || !is_whole(b)) return real_arithmetic(op, real(a), real(b));
    return whole_arithmetic(op, whole(a), whole(b));
  }
  if (op == "+" && a.is_string() && b.is_string()) return jinja_text(a.as_string() + b.as_string());
  if (op == "+" && a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple()) {
    if (a.as_list().size() + b.as_list().size() > kMaxTemplateList) return invalid("a list grew too long");
    Value::List items = a.as_list();
    items.insert(items.end(), b.as_list().begin(), b.as_list().end());
    return a.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  const bool a_sequence = a.is_string() || a.is_list();
  const bool b_sequence = b.is_string() || b.is_list();
  if (op == "*" && a_sequence && is_whole(b)) return repeat(a, whole(b));
  if (op == "*" && b_sequence && is_whole(a)) return repeat(b, whole(a));
  if (op == "%" && a.is_string()) return invalid("'%' formatting of a str is not supported");
  return wrong_types(op, a, b);
}

Result<bool> jinja_compare(std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(a, b);
  if (op == "not in") {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool inside, contains(a, b));
    return !inside;
  }
  const auto decide = [&](const auto& x, const auto& y) {
    if (op == "<") return x < y;
    if (op == "<=") return x <= y;
    if (op == ">") return x > y;
    return x >= y;
  };
  if (is_whole(a) && is_whole(b)) return decide(whole(a), whole(b));
  if (is_number(a) && is_number(b)) return decide(real(a), real(b));
  if (a.is_string() && b.is_string()) return decide(a.as_string(), b.as_string());
  return wrong_types(op, a, b);
}

Result<Value> jinja_slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (!object.is_string() && !object.is_list()) return invalid("a slice of {}", object.type());
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->is_undefined() && !is_whole(*bound)) {
      return invalid("a slice bound is {}, not int", bound->type());
    }
  }
  const int64_t by = step.is_none() || step.is_undefined() ? 1 : whole(step);
  if (by == 0) return invalid("a slice with step 0");
  const std::vector<size_t> offsets =
      object.is_string() ? utf8_offsets(object.as_string()) : std::vector<size_t>();
  const auto size = static_cast<int64_t>(object.is_string() ? offsets.size() - 1 : object.as_list().size());
  const int64_t first = slice_bound(start, size, by > 0 ? 0 : size - 1, by);
  const int64_t last = slice_bound(stop, size, by > 0 ? size : -1, by);
  std::string text;
  Value::List items;
  for (int64_t i = first; by > 0 ? i < last : i > last;) {
    const auto index = static_cast<size_t>(i);
    if (object.is_string()) {
      text.append(object.as_string(), offsets[index], offsets[index + 1] - offsets[index]);
    } else {
      items.push_back(object.as_list()[index]);
    }
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (object.is_string()) return Value::string(std::move(text));
  return object.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Result<Value> jinja_item(const Value& object, const Value& key) {
  if (key.is_string()) {
    const Value* found = object.find(key.as_string());
    return found != nullptr ? *found : Value();
  }
  if (!is_whole(key)) return Value();
  int64_t index = whole(key);
  if (object.is_list()) {
    const auto size = static_cast<int64_t>(object.as_list().size());
    if (index < 0) index += size;
    return index >= 0 && index < size ? object.as_list()[static_cast<size_t>(index)] : Value();
  }
  if (object.is_string()) {
    const std::vector<size_t> offsets = utf8_offsets(object.as_string());
    const auto size = static_cast<int64_t>(offsets.size()) - 1;
    if (index < 0) index += size;
    if (index < 0 || index >= size) return Value();
    const size_t begin = offsets[static_cast<size_t>(index)];
    return Value::string(object.as_string().substr(begin, offsets[static_cast<size_t>(index) + 1] - begin));
  }
  return Value();
}

Result<Value::List> jinja_iterate(const Value& value) {
  Value::List items;
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return items;
    case Value::Kind::kList:
      return value.as_list();
    case Value::Kind::kMap:
      for (const auto& entry : value.as_map().entries()) items.push_back(Value::string(entry.first));
      return items;
    case Value::Kind::kString: {
      const std::string& text = value.as_string();
      const std::vector<size_t> offsets = utf8_offsets(text);
      if (offsets.size() > kMaxTemplateList) return invalid("a loop over too long a text");
      for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        items.push_back(Value::string(text.substr(offsets[i], offsets[i + 1] - offsets[i])));
      }
      return items;
    }
    default:
      return invalid("{} cannot be looped over", value.type());
  }
}

}  // namespace lockstep::data
