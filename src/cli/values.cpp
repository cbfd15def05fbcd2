// SPDX-License-Identifier: Apache-2.0
#include "cli/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/suggest.h"

namespace lockstep::cli {
namespace {

std::string kind_text(const Option& option) {
  switch (option.kind) {
    case Kind::kFlag:
      return "true or false";
    case Kind::kInt:
    case Kind::kInts:
      return "a whole number";
    case Kind::kReal:
      return "a number";
    case Kind::kChoice:
      return option.value;
    default:
      return "text";
  }
}

bool in_range(const Range& range, double value) {
  if (range.has_special && value == range.special) return true;
  if (range.above ? !(value > range.lowest) : !(value >= range.lowest)) return false;
  return range.below ? value < range.highest : value <= range.highest;
}

Status check_text(const Option& option, const std::string& text, const std::string& where) {
  if (text.empty() && !option.may_be_empty) {
    return invalid("{}: is empty; give {} or leave the option out", where, option.value);
  }
  if (text.find('\0') != std::string::npos) return invalid("{}: holds a NUL character; remove it", where);
  if (!is_utf8(text)) return invalid("{}: '{}' is not UTF-8", where, shown(text));
  return ok_status();
}

Status check_choice(const Option& option, const std::string& text, const std::string& where) {
  const std::vector<std::string> names = option.choices();
  if (std::find(names.begin(), names.end(), text) != names.end()) return ok_status();
  const bool cuda = text == "gpu" && std::find(names.begin(), names.end(), "cuda") != names.end();
  const std::string near = cuda ? "cuda" : nearest_name(text, names);
  return invalid("{}: '{}' is not one of {}{}", where, shown(text), option.value,
                 near.empty() ? "" : "; did you mean " + near + "?");
}

// kFixed and kRefused say themselves what they take.
Status check_fixed(const Option& option, const std::string& text, bool same, const std::string& where) {
  if (option.role == Role::kRefused) return invalid("{}: {}", where, option.help);
  if (option.role != Role::kFixed || same) return ok_status();
  return invalid("{}: '{}' is refused, only {} is taken: {}", where, shown(text), option.target, option.help);
}

}  // namespace

std::string shown(std::string_view text) {
  constexpr size_t kLongest = 80;
  size_t end = std::min(text.size(), kLongest);
  const bool utf8 = is_utf8(text);
  while (utf8 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  std::string out;
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8)) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (end < text.size() ? "..." : "");
}

std::string real_text(double value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return {buffer, result.ptr};
}

Result<double> parse_real(std::string_view text) {
  double value = 0;
  const char* begin = text.data() + (text.size() > 1 && text[0] == '+' && text[1] != '-' ? 1 : 0);
  const auto result = std::from_chars(begin, text.data() + text.size(), value);
  const bool whole = result.ptr == text.data() + text.size();
  if (result.ec == std::errc::result_out_of_range && whole) {
    return invalid("'{}' is out of range of binary64", shown(text));
  }
  if (result.ec != std::errc() || !whole || !std::isfinite(value)) {
    return invalid("'{}' is not a number", shown(text));
  }
  return value;
}

Result<int64_t> parse_integer(std::string_view text, std::string_view range) {
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = result.ptr == text.data() + text.size();
  if (result.ec == std::errc::result_out_of_range && whole) {
    return invalid("'{}' is out of range; take {}", shown(text), range);
  }
  if (result.ec != std::errc() || !whole) return invalid("'{}' is not a whole number", shown(text));
  return value;
}

bool is_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    size_t more = 0;
    uint32_t code = lead;
    if (lead >= 0xf0 && lead <= 0xf4) {
      more = 3, code = lead & 0x07;
    } else if (lead >= 0xe0 && lead < 0xf0) {
      more = 2, code = lead & 0x0f;
    } else if (lead >= 0xc2 && lead < 0xe0) {
      more = 1, code = lead & 0x1f;
    } else if (lead >= 0x80) {
      return false;
    }
    if (i + more >= text.size()) return false;
    for (size_t j = 1; j <= more; ++j) {
      const auto next = static_cast<unsigned char>(text[i + j]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    const bool overlong = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
    if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += more + 1;
  }
  return true;
}

std::string range_text(const Option& option) {
  const Range& range = option.range;
  const bool whole = option.kind == Kind::kInt;
  const auto bound = [whole](double value) {
    return whole ? std::to_string(static_cast<int64_t>(value)) : real_text(value);
  };
  std::string text;
  if (std::isinf(range.highest)) {
    text = fmt::format("{} {}", range.above ? "above" : "at least", bound(range.lowest));
  } else if (range.above || range.below) {
    text = fmt::format("{} {} and {} {}", range.above ? "above" : "at least", bound(range.lowest),
                       range.below ? "below" : "at most", bound(range.highest));
  } else {
    text = fmt::format("from {} to {}", bound(range.lowest), bound(range.highest));
  }
  if (range.has_special) text += ", or " + bound(range.special);
  return text;
}

Status set_flag(const Option& option, bool flag, Value* value) {
  value->flag = flag;
  if (option.role == Role::kRefused && !flag) return ok_status();
  return check_fixed(option, flag ? "true" : "false", option.target == (flag ? "true" : "false"),
                     value->where);
}

Status set_integer(const Option& option, int64_t integer, Value* value) {
  value->integer = integer;
  value->real = static_cast<double>(integer);
  if (!in_range(option.range, value->real)) {
    return invalid("{}: {} is out of range; take {}", value->where, integer, range_text(option));
  }
  return ok_status();
}

Status set_real(const Option& option, double real, Value* value) {
  value->real = real + 0.0;  // -0 is 0
  if (!std::isfinite(real)) return invalid("{}: is not a finite number", value->where);
  if (option.role == Role::kFixed) {
    const Result<double> target = parse_real(option.target);
    return check_fixed(option, real_text(real), target.ok() && target.value() == real, value->where);
  }
  if (!in_range(option.range, real)) {
    return invalid("{}: {} is out of range; take {}", value->where, real_text(real), range_text(option));
  }
  return ok_status();
}

Status set_words(const Option& option, const std::vector<std::string>& words, Value* value) {
  value->words = words;
  const std::string& where = value->where;
  if (words.empty()) return invalid("{}: needs {}", where, option.value.empty() ? "a value" : option.value);
  if (option.role == Role::kRefused) return check_fixed(option, "", false, where);
  switch (option.kind) {
    case Kind::kFlag:
      return invalid("{}: takes no value; --{} or --no-{}", where, option.name, option.name);
    case Kind::kInt: {
      const bool open = std::isinf(option.range.highest);  // then 64 bits are the bound that was passed
      const Result<int64_t> integer = parse_integer(
          words[0], range_text(option) + (open ? fmt::format(" and at most {}", INT64_MAX) : ""));
      if (!integer.ok()) return integer.status().with_context(where);
      return set_integer(option, integer.value(), value);
    }
    case Kind::kReal: {
      const Result<double> real = parse_real(words[0]);
      if (!real.ok()) return real.status().with_context(where);
      return set_real(option, real.value(), value);
    }
    case Kind::kText:
      LOCKSTEP_RETURN_IF_ERROR(check_text(option, words[0], where));
      return check_fixed(option, words[0], words[0] == option.target, where);
    case Kind::kChoice:
      return check_choice(option, words[0], where);
    case Kind::kInts:
      value->integers.clear();
      for (const std::string& word : words) {
        const Result<int64_t> integer = parse_integer(word, fmt::format("0 to {}", INT32_MAX));
        if (!integer.ok()) return integer.status().with_context(where);
        if (integer.value() < 0 || integer.value() > INT32_MAX) {
          return invalid("{}: {} is no token id; take 0 to {}", where, integer.value(), INT32_MAX);
        }
        value->integers.push_back(integer.value());
      }
      return ok_status();
    case Kind::kTexts:
    case Kind::kPairs:
      if (option.kind == Kind::kPairs && words.size() % 2 != 0) {
        return invalid("{}: wants {}, a name before each file; found {} words", where, option.value,
                       words.size());
      }
      for (const std::string& word : words) LOCKSTEP_RETURN_IF_ERROR(check_text(option, word, where));
      return ok_status();
  }
  return invalid("{}: wants {}", where, kind_text(option));
}

const Value* Values::find(std::string_view name) const {
  const auto found = given_.find(std::string(name));
  return found == given_.end() ? nullptr : &found->second;
}

Value Values::value_or_default(std::string_view name) const {
  if (const Value* value = find(name)) return *value;
  const Option* option = find_option(name, command_);
  LOCKSTEP_CHECK(option != nullptr, std::string(name));
  Value value;
  value.where = "--" + option->name;
  if (option->kind == Kind::kFlag) {
    value.flag = option->fallback == "true";
  } else if (!option->fallback.empty()) {
    const Status status = set_words(*option, {option->fallback}, &value);
    LOCKSTEP_CHECK(status.ok(), status.message());
  }
  return value;
}

bool Values::flag(std::string_view name) const {
  return value_or_default(name).flag;
}
int64_t Values::integer(std::string_view name) const {
  return value_or_default(name).integer;
}
double Values::real(std::string_view name) const {
  return value_or_default(name).real;
}
std::string Values::text(std::string_view name) const {
  const Value value = value_or_default(name);
  return value.words.empty() ? "" : value.words[0];
}
std::vector<std::string> Values::texts(std::string_view name) const {
  return value_or_default(name).words;
}
std::vector<int64_t> Values::integers(std::string_view name) const {
  return value_or_default(name).integers;
}
std::string Values::where(std::string_view name) const {
  const Value* value = find(name);
  return value != nullptr ? value->where : "--" + std::string(name);
}

}  // namespace lockstep::cli
