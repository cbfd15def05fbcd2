// SPDX-License-Identifier: Apache-2.0
// The data of JSON rows and chat templates: JSON's kinds with Python's integers and floats apart, objects in
// the order they were written, and what a template adds (undefined, tuples, namespaces, functions). A Value
// is cheap to copy; lists and maps are shared and not changed after they are built (a namespace's map is).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/status.h"

namespace lockstep::data {

class Value;

// Keys in order of first insertion; setting a key again keeps its place, as Python's dict does.
class ValueMap {
 public:
  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value);
  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }
  size_t size() const;

 private:
  size_t slot_of(std::string_view key) const;

  std::vector<std::pair<std::string, Value>> entries_;
  // Once there are more than a few entries: open addressing, a power of two, the entry's place + 1 or 0.
  std::vector<uint32_t> slots_;
};

class Value {
 public:
  enum class Kind { kUndefined, kNone, kBool, kInt, kFloat, kString, kList, kMap, kNamespace, kFunction };
  using List = std::vector<Value>;
  static constexpr int64_t kMaxWeight = int64_t{1} << 40;

  Value() = default;  // undefined
  static Value none();
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  static Value string(std::string value);
  static Value list(List items);
  static Value tuple(List items);
  static Value map(ValueMap map);
  static Value namespace_of(ValueMap map);
  static Value function(std::string name);

  Kind kind() const;
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_list() const { return kind() == Kind::kList; }  // or tuple
  bool is_tuple() const;
  bool is_map() const { return kind() == Kind::kMap; }

  // Each checks the kind.
  bool as_bool() const;
  int64_t as_int() const;
  double as_float() const;
  const std::string& as_string() const;
  const List& as_list() const;
  const ValueMap& as_map() const;   // of a map or namespace
  ValueMap& namespace_map() const;  // of a namespace: shared and mutable
  const std::string& function_name() const;

  // The member of a map, or null (also when this is no map).
  const Value* find(std::string_view key) const;
  bool truthy() const;  // Python's bool()
  int depth() const;    // 0 for a scalar; a list of scalars 1
  // What walking or printing it takes: 1 a value and a key, 1 more per 64 bytes of text. A part that two
  // lists share counts in both. At most kMaxWeight; of a namespace 1.
  int64_t weight() const;
  std::string_view type() const;  // Python's name: "str", "NoneType", "dict", ...

 private:
  struct None {};
  struct Items;
  struct Entries;
  struct Function;
  std::variant<std::monostate, None, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const Items>, std::shared_ptr<Entries>, std::shared_ptr<const Function>>
      data_;
};

inline size_t ValueMap::size() const {  // below Value: clang wants its elements complete here
  return entries_.size();
}

// Python's ==: 1 == 1.0 == True; lists and maps by content.
bool equal(const Value& a, const Value& b);
// Python's str() and repr().
std::string to_str(const Value& value);
std::string to_repr(const Value& value);
std::string float_repr(double value);

// The message {"role": role, "content": content}.
Value make_message(std::string_view role, std::string_view content);

// One JSON text. Refuses what JSON does not allow, bytes that are no UTF-8, lone surrogates, nesting beyond
// 128. Integers that do not fit 64 bits become floats. The error says the byte (from 1) and the reason.
Result<Value> parse_json(std::string_view text);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<int> indent;  // spaces; none: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  size_t max_bytes = SIZE_MAX;  // the writer stops soon after; the caller sees a longer text
};
// As Python's json.dumps writes it. Undefined, namespaces and functions become null (callers check first).
std::string to_json(const Value& value, const JsonStyle& style = {});
// One line without blanks, not escaped beyond what JSON needs: for records and hashes.
std::string to_compact_json(const Value& value);

}  // namespace lockstep::data
