// SPDX-License-Identifier: Apache-2.0
// Values as text: Python's str() and repr(), JSON out, JSON in.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "data/utf8.h"
#include "data/value.h"

namespace lockstep::data {
namespace {

constexpr size_t kMaxJsonDepth = 128;

// Characters that repr() spells as escapes: controls and the separators Python calls unprintable. Others
// that Python would escape too (unassigned, private) are left as they are.
bool repr_escapes(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0xA0) || code == 0xAD || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200F) || (code >= 0x2028 && code <= 0x202F) ||
         (code >= 0x205F && code <= 0x206F) || code == 0x3000 || code == 0xFEFF;
}

std::string string_repr(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = next_utf8(text, i);
    const std::string_view piece = std::string_view(text).substr(i, static_cast<size_t>(c.length_bytes));
    if (c.code == '\\' || c.code == static_cast<char32_t>(quote)) {
      out += '\\';
      out += piece;
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\r') {
      out += "\\r";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (repr_escapes(c.code)) {
      out += c.code < 0x100 ? fmt::format("\\x{:02x}", static_cast<uint32_t>(c.code))
                            : fmt::format("\\u{:04x}", static_cast<uint32_t>(c.code));
    } else {
      out += piece;
    }
    i += static_cast<size_t>(c.length_bytes);
  }
  return out + quote;
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, int level) {
    if (out_.size() > style_.max_bytes) return;
    switch (value.kind()) {
      case Value::Kind::kBool:
        out_ += value.as_bool() ? "true" : "false";
        break;
      case Value::Kind::kInt:
        out_ += std::to_string(value.as_int());
        break;
      case Value::Kind::kFloat:
        write_float(value.as_float());
        break;
      case Value::Kind::kString:
        write_string(value.as_string());
        break;
      case Value::Kind::kList:
        write_list(value.as_list(), level);
        break;
      case Value::Kind::kMap:
        write_map(value.as_map(), level);
        break;
      default:
        out_ += "null";
        break;
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void write_float(double value) {
    if (std::isnan(value)) {
      out_ += "NaN";
    } else if (std::isinf(value)) {
      out_ += value > 0 ? "Infinity" : "-Infinity";
    } else {
      out_ += float_repr(value);
    }
  }

  void write_string(const std::string& text) {
    out_ += '"';
    for (size_t i = 0; i < text.size();) {
      const Utf8Char c = next_utf8(text, i);
      const uint32_t code = static_cast<uint32_t>(c.code);
      switch (code) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\f':
          out_ += "\\f";
          break;
        case '\b':
          out_ += "\\b";
          break;
        default:
          if (code < 0x20 || (style_.ensure_ascii && code > 0x7E)) {
            if (code < 0x10000) {
              out_ += fmt::format("\\u{:04x}", code);
            } else {
              out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                                  0xDC00 + ((code - 0x10000) & 0x3FF));
            }
          } else {
            append_utf8(out_, c.code);
          }
      }
      i += static_cast<size_t>(c.length_bytes);
    }
    out_ += '"';
  }

  void new_line(int level) {
    if (!style_.indent) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(*style_.indent) * static_cast<size_t>(level), ' ');
  }

  void write_list(const Value::List& items, int level) {
    out_ += '[';
    for (size_t i = 0; i < items.size() && out_.size() <= style_.max_bytes; ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      write(items[i], level + 1);
    }
    if (!items.empty()) new_line(level);
    out_ += ']';
  }

  void write_map(const ValueMap& map, int level) {
    std::vector<const std::pair<std::string, Value>*> entries;
    for (const auto& entry : map.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      // Byte order of UTF-8 is the order of code points, which is Python's.
      std::sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return a->first < b->first; });
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size() && out_.size() <= style_.max_bytes; ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      write_string(entries[i]->first);
      out_ += style_.key_separator;
      write(entries[i]->second, level + 1);
    }
    if (!entries.empty()) new_line(level);
    out_ += '}';
  }

  const JsonStyle& style_;
  std::string out_;
};

// nlohmann's parser drives these events; nesting is counted here, so that no text can exhaust the stack.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add(Value::none()); }
  bool boolean(bool value) override { return add(Value::boolean(value)); }
  bool number_integer(int64_t value) override { return add(Value::integer(value)); }
  bool number_unsigned(uint64_t value) override {
    return value <= INT64_MAX ? add(Value::integer(static_cast<int64_t>(value)))
                              : add(Value::real(static_cast<double>(value)));
  }
  bool number_float(double value, const std::string&) override { return add(Value::real(value)); }
  bool string(std::string& value) override { return add(Value::string(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return push(true); }
  bool start_array(size_t) override { return push(false); }
  bool key(std::string& value) override {
    stack_.back().key = std::move(value);
    return true;
  }
  bool end_object() override {
    Value value = Value::map(std::move(stack_.back().map));
    stack_.pop_back();
    return add(std::move(value));
  }
  bool end_array() override {
    Value value = Value::list(std::move(stack_.back().list));
    stack_.pop_back();
    return add(std::move(value));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) override {
    // nlohmann says "[json.exception...] parse error at line 1, column 5: reason"; the place is ours to say.
    std::string reason = error.what();
    const size_t column = reason.find("column ");
    const size_t colon = column == std::string::npos ? column : reason.find(": ", column);
    if (colon != std::string::npos) reason = reason.substr(colon + 2);
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    error_ = fmt::format("byte {}: {}", position, replace_invalid_utf8(reason));
    return false;
  }

  Value result;
  const std::string& error() const { return error_; }

 private:
  struct Open {
    bool is_object = false;
    std::string key;
    ValueMap map;
    Value::List list;
  };

  bool push(bool is_object) {
    if (stack_.size() >= kMaxJsonDepth) {
      error_ = fmt::format("nested deeper than {} levels", kMaxJsonDepth);
      return false;
    }
    stack_.push_back({is_object, {}, {}, {}});
    return true;
  }
  bool add(Value value) {
    if (stack_.empty()) {
      result = std::move(value);
    } else if (stack_.back().is_object) {
      stack_.back().map.set(stack_.back().key, std::move(value));
    } else {
      stack_.back().list.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Open> stack_;
  std::string error_;
};

}  // namespace

std::string to_repr(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return "Undefined";
    case Value::Kind::kNone:
      return "None";
    case Value::Kind::kBool:
      return value.as_bool() ? "True" : "False";
    case Value::Kind::kInt:
      return std::to_string(value.as_int());
    case Value::Kind::kFloat:
      return float_repr(value.as_float());
    case Value::Kind::kString:
      return string_repr(value.as_string());
    case Value::Kind::kList: {
      std::string out(1, value.is_tuple() ? '(' : '[');
      for (size_t i = 0; i < value.as_list().size(); ++i) {
        if (i > 0) out += ", ";
        out += to_repr(value.as_list()[i]);
      }
      if (value.is_tuple() && value.as_list().size() == 1) out += ',';
      return out + (value.is_tuple() ? ')' : ']');
    }
    case Value::Kind::kMap: {
      std::string out = "{";
      for (const auto& [key, item] : value.as_map().entries()) {
        if (out.size() > 1) out += ", ";
        out += string_repr(key) + ": " + to_repr(item);
      }
      return out + "}";
    }
    case Value::Kind::kNamespace:
      return "<Namespace>";
    default:
      return "<function " + value.function_name() + ">";
  }
}

std::string to_str(const Value& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_undefined()) return {};
  return to_repr(value);
}

Result<Value> parse_json(std::string_view text) {
  // nlohmann's lexer skips a byte-order mark and takes a zero byte for the end; JSON knows neither.
  if (text.substr(0, 3) == "\xEF\xBB\xBF") return invalid("not valid JSON: byte 1: a byte-order mark");
  const size_t zero = text.find('\0');
  if (zero != std::string_view::npos) return invalid("not valid JSON: byte {}: a zero byte", zero + 1);
  ValueBuilder builder;
  const bool ok = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!ok) return invalid("not valid JSON: {}", builder.error());
  return builder.result;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return writer.take();
}

std::string to_compact_json(const Value& value) {
  const JsonStyle style{false, std::nullopt, ",", ":", false, SIZE_MAX};
  return to_json(value, style);
}

}  // namespace lockstep::data
