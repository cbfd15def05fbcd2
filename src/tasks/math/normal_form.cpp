// SPDX-License-Identifier: Apache-2.0
#include "tasks/math/normal_form.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "tasks/math/expression.h"
#include "tasks/math/latex.h"
#include "tasks/number.h"
#include "tasks/text.h"

namespace lockstep::tasks {
namespace {

bool starts_with_at(std::string_view text, size_t at, std::string_view what) {
  return text.substr(std::min(at, text.size()), what.size()) == what;
}

// \text{...} around the whole answer.
std::string_view without_outer_text(std::string_view answer) {
  constexpr std::string_view kOpen = "\\text{";
  if (!answer.starts_with(kOpen) || !answer.ends_with('}')) return answer;
  const std::string_view inner = answer.substr(kOpen.size(), answer.size() - kOpen.size() - 1);
  return inner.empty() ? answer : inner;
}

// Braces around single arguments: \sqrt3 -> \sqrt{3}, \frac12 -> \frac{1}{2}. False: one is missing.
bool brace_arguments(std::string& text, std::string_view command, int count) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find(command); at != std::string::npos; at = text.find(command, begin)) {
    size_t i = at + command.size();
    out.append(text, begin, i - begin);
    for (int k = 0; k < count && !starts_with_at(text, i, "{"); ++k) {
      if (i >= text.size()) return false;
      const size_t size = code_point_at(text, i).size_bytes;
      out.append("{").append(text, i, size).append("}");
      i += size;
    }
    begin = i;
  }
  text = out.append(text, begin);
  return true;
}

// "-3" or "12" as a number is printed: no plus, no leading zero.
bool is_printed_integer(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return false;
  return digits[0] != '0' || text == "0";
}

// Off: from `\text{ ` on, where it occurs once.
bool remove_text_unit(std::string& s) {
  constexpr std::string_view kUnit = "\\text{ ";
  const size_t at = s.find(kUnit);
  if (at == std::string::npos) return true;
  if (s.find(kUnit, at + 1) != std::string::npos) return false;
  s.resize(at);
  return true;
}

std::string replace_each(std::string s,
                         std::initializer_list<std::pair<std::string_view, std::string_view>> pairs) {
  for (const auto& [from, to] : pairs) s = replace_all(s, from, to);
  return s;
}

// The end of ^2 or ^{2} at `at`, or `at`.
size_t skip_exponent(std::string_view text, size_t at) {
  if (!starts_with_at(text, at, "^")) return at;
  const bool braced = starts_with_at(text, at + 1, "{");
  const size_t begin = at + (braced ? 2 : 1);
  size_t end = begin;
  while (end < text.size() && is_digit(text[end])) ++end;
  if (end == begin || (braced && !starts_with_at(text, end, "}"))) return at;
  return end + (braced ? 1 : 0);
}

// Off: unit, (es), (s), blanks, exponent; the exponent also where the unit ends a group: \text{cm}^2.
std::string remove_unit(std::string_view text, std::string_view unit) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find(unit); at != std::string_view::npos; at = text.find(unit, begin)) {
    out.append(text, begin, at - begin);
    size_t i = at + unit.size();
    if (starts_with_at(text, i, "es")) i += 2;
    if (starts_with_at(text, i, "s")) ++i;
    while (starts_with_at(text, i, " ")) ++i;
    if (starts_with_at(text, i, "}")) {
      out += '}';
      ++i;
    }
    begin = skip_exponent(text, i);
  }
  return out.append(text.substr(begin));
}

// Off: the blanks after each `mark`, and with them what `to` does not keep of it.
std::string replace_with_blanks(std::string_view text, std::string_view mark, std::string_view to) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, begin)) {
    out.append(text, begin, at - begin).append(to);
    begin = at + mark.size();
    while (starts_with_at(text, begin, " ")) ++begin;
  }
  return out.append(text.substr(begin));
}

// "7 3/4" -> "7+3/4", "-7 3/4" -> "-7-3/4".
std::string join_mixed_numbers(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    out += text[i++];
    if (!is_digit(out.back()) || !starts_with_at(text, i, " ")) continue;
    size_t next = i;
    while (starts_with_at(text, next, " ")) ++next;
    size_t end = next;
    while (end < text.size() && is_digit(text[end])) ++end;
    const bool fraction = end > next && starts_with_at(text, end, "/");
    size_t first = out.size();
    while (first > 0 && is_digit(out[first - 1])) --first;
    const char before = first == 0 ? '(' : out[first - 1];
    const bool whole = before != '/' && before != '.' && before != '^';
    if (fraction) out += !whole ? '*' : before == '-' ? '-' : '+';
    i = next;
  }
  return out;
}

// Commas with a digit before them and exactly three after. A tuple's commas stay.
std::string without_thousands_commas(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    size_t end = i + 1;
    while (text[i] == ',' && end < text.size() && end < i + 5 && is_digit(text[end])) ++end;
    const bool thousands = text[i] == ',' && i > 0 && is_digit(text[i - 1]) && end == i + 4;
    if (!thousands) out += text[i];
  }
  return out;
}

std::optional<std::string> integer_of(std::string_view text) {
  const std::optional<Decimal> value = parse_decimal(text);
  return value ? near_integer(*value) : std::nullopt;
}

bool is_plain_fraction(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view den = text.substr(slash + 1);
  std::string_view num = text.substr(0, slash);
  if (num.starts_with('-')) num.remove_prefix(1);
  const auto digits = [](std::string_view s) {
    return !s.empty() && std::all_of(s.begin(), s.end(), is_digit);
  };
  return digits(num) && digits(den) && den.find_first_not_of('0') != den.npos;
}

// The elements of ( ) or [ ] without brackets inside; else the text itself.
std::vector<std::string_view> elements_of(std::string_view text) {
  constexpr std::string_view kBrackets = "()[]";
  const auto is_bracket = [&](char c) { return kBrackets.find(c) != kBrackets.npos; };
  const bool tuple = text.size() > 2 && is_bracket(text.front()) && is_bracket(text.back()) &&
                     text.substr(1, text.size() - 2).find_first_of(kBrackets) == text.npos;
  if (!tuple) return {text};
  std::vector<std::string_view> out;
  text = text.substr(1, text.size() - 2);
  for (size_t comma = text.find(','); comma != text.npos; comma = text.find(',')) {
    out.push_back(text.substr(0, comma));
    text.remove_prefix(comma + 1);
  }
  out.push_back(text);
  return out;
}

bool elements_agree(std::string_view given, std::string_view wanted) {
  if (given == wanted) return !given.empty();
  if (is_plain_fraction(given) && is_plain_fraction(wanted)) return false;  // 2/4 is not 1/2: not reduced
  if (integer_of(given).has_value() != integer_of(wanted).has_value()) return false;
  return symbolically_equal(given, wanted);
}

}  // namespace

std::string latex_form(std::string_view answer) {
  answer = strip(without_outer_text(strip(answer)));
  std::string s = replace_each(std::string(answer), {{"\n", ""},
                                                     {"\\!", ""},
                                                     {"\\\\", "\\"},
                                                     {"tfrac", "frac"},
                                                     {"dfrac", "frac"},
                                                     {"\\left", ""},
                                                     {"\\right", ""},
                                                     {"^{\\circ}", ""},
                                                     {"^\\circ", ""},
                                                     {"\\$", ""}});
  if (!remove_text_unit(s)) return std::string(answer);
  s = replace_each(std::move(s), {{"\\%", ""}, {" .", " 0."}, {"{.", "{0."}});
  if (s.starts_with('.')) s = "0" + s;
  const size_t equals = s.find('=');
  if (equals <= 2 && s.find('=', equals + 1) == std::string::npos) s = s.substr(equals + 1);
  if (!brace_arguments(s, "\\sqrt", 1)) return std::string(answer);
  s = replace_all(s, " ", "");
  if (!brace_arguments(s, "\\frac", 2)) return std::string(answer);
  if (s == "0.5") return "\\frac{1}{2}";
  const size_t slash = s.find('/');
  if (slash != std::string::npos) {
    const std::string num = s.substr(0, slash);
    const std::string den = s.substr(slash + 1);
    if (is_printed_integer(num) && is_printed_integer(den)) return "\\frac{" + num + "}{" + den + "}";
  }
  return s;
}

std::string plain_form(std::string_view answer) {
  std::string s = replace_each(std::string(without_outer_text(answer)), {{"\\%", ""},
                                                                         {"\\$", ""},
                                                                         {"$", ""},
                                                                         {"%", ""},
                                                                         {" or ", " , "},
                                                                         {" and ", " , "},
                                                                         {"million", "*10^6"},
                                                                         {"billion", "*10^9"},
                                                                         {"trillion", "*10^12"},
                                                                         {"\u2212", "-"}});
  for (const std::string_view unit :
       {"degree", "cm", "centimeter", "meter", "mile", "second", "minute", "hour", "day", "week", "month",
        "year", "foot", "feet", "inch", "yard"}) {
    s = remove_unit(s, unit);
  }
  s = replace_each(std::move(s), {{"^{\\circ}", ""}, {"^\\circ", ""}, {"^ \\circ", ""}});
  if (s.starts_with('{') && s.ends_with('}')) s = s.size() > 1 ? s.substr(1, s.size() - 2) : "";
  s = replace_with_blanks(s, ",\\!", "");
  if (const std::optional<std::string> integer = integer_of(strip(s))) s = *integer;
  if (s.find('\\') != std::string::npos || s.find("^{") != std::string::npos) {
    if (std::optional<std::string> plain = latex_to_plain(s)) s = std::move(*plain);
  }
  s = replace_each(std::string(strip(s)), {{"\u221A", "sqrt"},
                                           {"\u03C0", "pi"},
                                           {"\u221E", "inf"},
                                           {"\u222A", "U"},
                                           {"\u00B7", "*"},
                                           {"\u00D7", "*"}});
  s = join_mixed_numbers(replace_with_blanks(s, "-", "-"));
  s = lower(replace_each(std::move(s), {{" ", ""}, {"{", ""}, {"}", ""}}));
  if (s.ends_with('.') && !s.ends_with("..")) s.pop_back();  // the full stop of a sentence
  if (const std::optional<std::string> integer = integer_of(without_thousands_commas(s))) s = *integer;
  return s;
}

bool plain_forms_agree(std::string_view given, std::string_view wanted) {
  if (given.empty() || wanted.empty()) return false;
  if (given == wanted) return true;
  const std::string given_plain = without_thousands_commas(given);
  const std::string wanted_plain = without_thousands_commas(wanted);
  const std::vector<std::string_view> left = elements_of(given_plain);
  const std::vector<std::string_view> right = elements_of(wanted_plain);
  if (left.size() != right.size()) return false;
  if (right.size() > 1 && (given.front() != wanted.front() || given.back() != wanted.back())) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    if (!elements_agree(left[i], right[i])) return false;
  }
  return true;
}

}  // namespace lockstep::tasks
