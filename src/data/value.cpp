// SPDX-License-Identifier: Apache-2.0
#include "data/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "core/check.h"
#include "data/utf8.h"

namespace lockstep::data {
namespace {

constexpr size_t kIndexFrom = 16;  // entries from which a map keeps a hash index

int depth_of(const Value::List& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

int64_t weight_of(std::string_view text) {
  return 1 + static_cast<int64_t>(text.size() / 64);
}
int64_t weight_of(const Value::List& items) {
  int64_t weight = 1;
  for (const Value& item : items) weight = std::min(weight + item.weight(), Value::kMaxWeight);
  return weight;
}
int64_t weight_of(const ValueMap& map) {
  int64_t weight = 1;
  for (const auto& [key, value] : map.entries()) {
    weight = std::min(weight + weight_of(key) + value.weight(), Value::kMaxWeight);
  }
  return weight;
}

}  // namespace

struct Value::Items {
  List items;
  bool tuple = false;
  int depth = 1;
  int64_t weight = 1;
};
struct Value::Entries {
  ValueMap map;
  bool is_namespace = false;
  int depth = 1;
  int64_t weight = 1;
};
struct Value::Function {
  std::string name;
};

// The slot that holds the key, or the free one where it belongs.
size_t ValueMap::slot_of(std::string_view key) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>()(key) & mask;
  while (slots_[slot] != 0 && entries_[slots_[slot] - 1].first != key) slot = (slot + 1) & mask;
  return slot;
}

const Value* ValueMap::find(std::string_view key) const {
  if (!slots_.empty()) {
    const uint32_t place = slots_[slot_of(key)];
    return place == 0 ? nullptr : &entries_[place - 1].second;
  }
  for (const auto& [name, value] : entries_) {
    if (name == key) return &value;
  }
  return nullptr;
}

void ValueMap::set(std::string_view key, Value value) {
  if (const Value* found = find(key)) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  entries_.emplace_back(std::string(key), std::move(value));
  if (entries_.size() < kIndexFrom) return;
  if (entries_.size() * 2 > slots_.size()) {
    slots_.assign(slots_.empty() ? kIndexFrom * 4 : slots_.size() * 2, 0);
    for (size_t i = 0; i < entries_.size(); ++i)
      slots_[slot_of(entries_[i].first)] = static_cast<uint32_t>(i + 1);
  } else {
    slots_[slot_of(entries_.back().first)] = static_cast<uint32_t>(entries_.size());
  }
}

Value Value::none() {
  Value v;
  v.data_ = None{};
  return v;
}
Value Value::boolean(bool value) {
  Value v;
  v.data_ = value;
  return v;
}
Value Value::integer(int64_t value) {
  Value v;
  v.data_ = value;
  return v;
}
Value Value::real(double value) {
  Value v;
  v.data_ = value;
  return v;
}
Value Value::string(std::string value) {
  Value v;
  v.data_ = std::make_shared<const std::string>(std::move(value));
  return v;
}
Value Value::list(List items) {
  Value v;
  const int depth = depth_of(items);
  const int64_t weight = weight_of(items);
  v.data_ = std::make_shared<const Items>(Items{std::move(items), false, depth, weight});
  return v;
}
Value Value::tuple(List items) {
  Value v;
  const int depth = depth_of(items);
  const int64_t weight = weight_of(items);
  v.data_ = std::make_shared<const Items>(Items{std::move(items), true, depth, weight});
  return v;
}
Value Value::map(ValueMap map) {
  int depth = 0;
  for (const auto& entry : map.entries()) depth = std::max(depth, entry.second.depth());
  const int64_t weight = weight_of(map);
  Value v;
  v.data_ = std::make_shared<Entries>(Entries{std::move(map), false, depth + 1, weight});
  return v;
}
Value Value::namespace_of(ValueMap map) {
  Value v;
  v.data_ = std::make_shared<Entries>(Entries{std::move(map), true, 1, 1});
  return v;
}
Value Value::function(std::string name) {
  Value v;
  v.data_ = std::make_shared<const Function>(Function{std::move(name)});
  return v;
}

Value::Kind Value::kind() const {
  switch (data_.index()) {
    case 0:
      return Kind::kUndefined;
    case 1:
      return Kind::kNone;
    case 2:
      return Kind::kBool;
    case 3:
      return Kind::kInt;
    case 4:
      return Kind::kFloat;
    case 5:
      return Kind::kString;
    case 6:
      return Kind::kList;
    case 7:
      return std::get<7>(data_)->is_namespace ? Kind::kNamespace : Kind::kMap;
    default:
      return Kind::kFunction;
  }
}

bool Value::is_tuple() const {
  return is_list() && std::get<6>(data_)->tuple;
}
bool Value::as_bool() const {
  LOCKSTEP_CHECK(is_bool());
  return std::get<2>(data_);
}
int64_t Value::as_int() const {
  LOCKSTEP_CHECK(is_int());
  return std::get<3>(data_);
}
double Value::as_float() const {
  LOCKSTEP_CHECK(is_float());
  return std::get<4>(data_);
}
const std::string& Value::as_string() const {
  LOCKSTEP_CHECK(is_string());
  return *std::get<5>(data_);
}
const Value::List& Value::as_list() const {
  LOCKSTEP_CHECK(is_list());
  return std::get<6>(data_)->items;
}
const ValueMap& Value::as_map() const {
  LOCKSTEP_CHECK(data_.index() == 7);
  return std::get<7>(data_)->map;
}
ValueMap& Value::namespace_map() const {
  LOCKSTEP_CHECK(kind() == Kind::kNamespace);
  return std::get<7>(data_)->map;
}
const std::string& Value::function_name() const {
  LOCKSTEP_CHECK(kind() == Kind::kFunction);
  return std::get<8>(data_)->name;
}

const Value* Value::find(std::string_view key) const {
  return data_.index() == 7 ? as_map().find(key) : nullptr;
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return as_bool();
    case Kind::kInt:
      return as_int() != 0;
    case Kind::kFloat:
      return as_float() != 0.0;
    case Kind::kString:
      return !as_string().empty();
    case Kind::kList:
      return !as_list().empty();
    case Kind::kMap:
      return as_map().size() > 0;
    default:
      return true;
  }
}

int Value::depth() const {
  if (data_.index() == 6) return std::get<6>(data_)->depth;
  if (data_.index() == 7) return std::get<7>(data_)->depth;
  return 0;
}

int64_t Value::weight() const {
  if (data_.index() == 5) return weight_of(as_string());
  if (data_.index() == 6) return std::get<6>(data_)->weight;
  if (data_.index() == 7) return std::get<7>(data_)->weight;
  return 1;
}

std::string_view Value::type() const {
  switch (kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return is_tuple() ? "tuple" : "list";
    case Kind::kMap:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    default:
      return "function";
  }
}

namespace {

bool is_number(const Value& v) {
  return v.is_bool() || v.is_int() || v.is_float();
}
double as_double(const Value& v) {
  if (v.is_float()) return v.as_float();
  return v.is_int() ? static_cast<double>(v.as_int()) : (v.as_bool() ? 1.0 : 0.0);
}
int64_t as_whole(const Value& v) {
  return v.is_int() ? v.as_int() : (v.as_bool() ? 1 : 0);
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  if (is_number(a) && is_number(b)) {
    return a.is_float() || b.is_float() ? as_double(a) == as_double(b) : as_whole(a) == as_whole(b);
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kString:
      return a.as_string() == b.as_string();
    case Value::Kind::kList: {
      if (a.is_tuple() != b.is_tuple() || a.as_list().size() != b.as_list().size()) return false;
      for (size_t i = 0; i < a.as_list().size(); ++i) {
        if (!equal(a.as_list()[i], b.as_list()[i])) return false;
      }
      return true;
    }
    case Value::Kind::kMap: {
      if (a.as_map().size() != b.as_map().size()) return false;
      for (const auto& [key, value] : a.as_map().entries()) {
        const Value* other = b.find(key);
        if (other == nullptr || !equal(value, *other)) return false;
      }
      return true;
    }
    case Value::Kind::kNamespace:
      return &a.as_map() == &b.as_map();
    case Value::Kind::kFunction:
      return a.function_name() == b.function_name();
    default:
      return true;  // none, undefined
  }
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Shortest digits that read back to the same value, laid out as Python does: an exponent below 1e-4 and
  // from 1e16 on, at least one digit after the point otherwise.
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  const bool negative = text[0] == '-';
  if (negative) text.erase(0, 1);
  const size_t e = text.find('e');
  int exponent = 0;
  const char* first = text.c_str() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(first, text.c_str() + text.size(), exponent);
  std::string digits = text.substr(0, e);
  digits.erase(std::remove(digits.begin(), digits.end(), '.'), digits.end());
  std::string out(negative ? 1 : 0, '-');
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out.append(1, '.').append(digits, 1);
    out += exponent < 0 ? "e-" : "e+";
    if (std::abs(exponent) < 10) out += '0';
    out += std::to_string(std::abs(exponent));
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() < whole + 1) digits.append(whole + 1 - digits.size(), '0');
    out.append(digits, 0, whole).append(1, '.').append(digits, whole);
  }
  return out;
}

Value make_message(std::string_view role, std::string_view content) {
  ValueMap map;
  map.set("role", Value::string(std::string(role)));
  map.set("content", Value::string(std::string(content)));
  return Value::map(std::move(map));
}

}  // namespace lockstep::data
