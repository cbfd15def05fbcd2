// SPDX-License-Identifier: Apache-2.0
#include "tasks/gsm8k/number_scan.h"

#include <algorithm>
#include <array>
#include <string>

#include "tasks/text.h"

namespace lockstep::tasks {
namespace {

constexpr size_t kMaxGroupBytes = 200;  // of a \frac argument; bounds the search for its brace

bool starts_with_at(std::string_view text, size_t at, std::string_view what) {
  return text.substr(std::min(at, text.size()), what.size()) == what;
}
bool digit_at(std::string_view text, size_t at) {
  return at < text.size() && is_digit(text[at]);
}
bool ends_with_before(std::string_view text, size_t end, std::string_view what) {
  return end >= what.size() && text.substr(end - what.size(), what.size()) == what;
}

// Bytes of a thousands separator at `at` that a digit follows, or 0.
size_t separator_at(std::string_view text, size_t at) {
  for (const std::string_view mark : {",", "{,}", ",\\!", "\\,", "\\!"}) {
    if (starts_with_at(text, at, mark) && digit_at(text, at + mark.size())) return mark.size();
  }
  return 0;
}

// Digits with separators and dots, as they stand.
struct Run {
  std::string plain;  // digits and at most one dot; empty when the grouping is wrong
  bool whole = true;  // no dot
  size_t end = 0;
};

Run read_run(std::string_view text, size_t at) {
  Run run;
  size_t group = 0;  // digits since the last separator
  int separators = 0;
  int dots = 0;
  bool good = true;
  for (;;) {
    if (digit_at(text, at)) {
      run.plain += text[at++];
      ++group;
      continue;
    }
    const size_t separator = separator_at(text, at);
    const bool dot = separator == 0 && starts_with_at(text, at, ".") && digit_at(text, at + 1);
    if (separator == 0 && !dot) break;
    // The group that ends here: three digits after a separator, one to three before the first.
    if (separators > 0 && dots == 0) good = good && group == 3;
    if (separator > 0) {
      good = good && dots == 0 && group <= 3 && group > 0;
      ++separators;
    } else {
      ++dots;
      run.plain += '.';
    }
    group = 0;
    at += separator + (dot ? 1 : 0);
  }
  if (separators > 0 && dots == 0) good = good && group == 3;
  if (!good || dots > 1) run.plain.clear();
  run.whole = dots == 0;
  run.end = at;
  return run;
}

// The end of an exponent that starts at `at`, or `at`.
size_t exponent_end(std::string_view text, size_t at) {
  size_t i = at;
  if (i >= text.size() || (text[i] != 'e' && text[i] != 'E')) return at;
  ++i;
  if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
  if (!digit_at(text, i)) return at;
  while (digit_at(text, i)) ++i;
  return i < text.size() && is_ascii_letter(text[i]) ? at : i;
}

std::optional<Rational> whole_number(const Run& run) {
  const std::optional<Decimal> value = parse_decimal(run.plain);
  return value ? to_rational(*value) : std::nullopt;
}

size_t frac_command_bytes(std::string_view text, size_t at) {
  for (const std::string_view command : {"\\frac", "\\dfrac", "\\tfrac"}) {
    if (starts_with_at(text, at, command)) return command.size();
  }
  return 0;
}

struct Fraction {
  std::optional<Rational> value;
  size_t end = 0;
  bool proper = false;  // numerator < denominator, both whole: may follow an integer as a mixed number
};

Fraction make_fraction(std::optional<Rational> num, std::optional<Rational> den, size_t end) {
  Fraction out;
  out.end = end;
  if (!num || !den) return out;
  out.proper = num->is_integer() && den->is_integer() && num->num >= 0 && num->num < den->num;
  out.value = divide(*num, *den);
  return out;
}

// \frac and its two arguments, each a digit or {number}. The arguments of another \frac are passed over.
Fraction read_frac(std::string_view text, size_t at) {
  size_t i = at + frac_command_bytes(text, at);
  std::array<std::optional<Rational>, 2> parts;
  for (std::optional<Rational>& part : parts) {
    while (starts_with_at(text, i, " ")) ++i;
    if (digit_at(text, i)) {
      part = Rational{text[i] - '0', 1};
      ++i;
      continue;
    }
    if (!starts_with_at(text, i, "{")) return make_fraction(std::nullopt, std::nullopt, i);
    int depth = 0;
    size_t close = i;
    for (; close < text.size() && close - i < kMaxGroupBytes; ++close) {
      depth += text[close] == '{' ? 1 : text[close] == '}' ? -1 : 0;
      if (depth == 0) break;
    }
    if (!starts_with_at(text, close, "}")) return make_fraction(std::nullopt, std::nullopt, i);
    const std::string_view inner = strip(text.substr(i + 1, close - i - 1));
    const size_t sign = starts_with_at(inner, 0, "-") ? 1 : 0;
    const Run run = read_run(inner, sign);
    if (run.end == inner.size()) part = whole_number(run);
    if (part && sign == 1) part->num = -part->num;
    i = close + 1;
  }
  return make_fraction(parts[0], parts[1], i);
}

// a/b of two runs without blanks; end == at when there is none.
Fraction read_slash(std::string_view text, size_t at) {
  const Run num = read_run(text, at);
  if (num.end == at || !starts_with_at(text, num.end, "/") || !digit_at(text, num.end + 1)) {
    return make_fraction(std::nullopt, std::nullopt, at);
  }
  size_t end = num.end;
  int slashes = 0;
  Run den;
  while (starts_with_at(text, end, "/") && digit_at(text, end + 1)) {
    den = read_run(text, end + 1);
    end = den.end;
    ++slashes;
  }
  if (slashes > 1) return make_fraction(std::nullopt, std::nullopt, end);  // a date
  return make_fraction(whole_number(num), whole_number(den), end);
}

// Digits of a name or an exponent: x2, m^2, x_{12}. A TeX command before them (\cdot6) is no name.
bool is_glued(std::string_view text, size_t begin) {
  size_t i = begin;
  if (i > 0 && text[i - 1] == '{') --i;
  if (i > 0 && (text[i - 1] == '^' || text[i - 1] == '_')) return true;
  i = begin;
  while (i > 0 && is_ascii_letter(text[i - 1])) --i;
  return i < begin && !(i > 0 && text[i - 1] == '\\');
}

// A minus sign directly before the number or its currency sign, unless it is an operator after an operand.
bool is_negative(std::string_view text, size_t begin) {
  for (const std::string_view currency : {"\\$", "$", "\u20AC", "\u00A3"}) {
    if (!ends_with_before(text, begin, currency)) continue;
    begin -= currency.size();
    break;
  }
  if (ends_with_before(text, begin, "\u2212")) {
    begin -= 3;
  } else if (ends_with_before(text, begin, "-")) {
    begin -= 1;
  } else {
    return false;
  }
  if (begin == 0) return true;
  const char before = text[begin - 1];
  constexpr std::string_view kOperandEnds = ")]}%!-_";
  return !is_digit(before) && !is_ascii_letter(before) && kOperandEnds.find(before) == kOperandEnds.npos;
}

void set_fraction(NumberInText& number, const Fraction& fraction, bool negative) {
  number.end = fraction.end;
  number.fraction = fraction.value;
  if (negative && number.fraction) number.fraction->num = -number.fraction->num;
}

NumberInText read_number(std::string_view text, size_t begin) {
  NumberInText number;
  const bool negative = is_negative(text, begin);
  if (frac_command_bytes(text, begin) > 0) {
    set_fraction(number, read_frac(text, begin), negative);
    return number;
  }
  const Fraction slash = read_slash(text, begin);
  if (slash.end > begin) {
    set_fraction(number, slash, negative);
    return number;
  }
  Run run = read_run(text, begin);
  number.end = run.end;
  size_t next = run.end;
  while (starts_with_at(text, next, " ")) ++next;
  const bool frac = frac_command_bytes(text, next) > 0;
  if (run.whole && (frac || (next > run.end && digit_at(text, next)))) {
    const Fraction tail = frac ? read_frac(text, next) : read_slash(text, next);
    const std::optional<Rational> whole = whole_number(run);
    if (tail.proper && tail.value && whole) {
      set_fraction(number, {add(*whole, *tail.value), tail.end, false}, negative);
      return number;
    }
  }
  if (run.plain.empty()) return number;
  number.end = exponent_end(text, run.end);
  number.decimal = parse_decimal((negative ? "-" : "") + run.plain +
                                 std::string(text.substr(run.end, number.end - run.end)));
  return number;
}

}  // namespace

std::optional<NumberInText> next_number(std::string_view text, size_t from) {
  for (size_t i = from; i < text.size(); ++i) {
    if (frac_command_bytes(text, i) > 0) return read_number(text, i);
    const bool leading_dot =
        text[i] == '.' && digit_at(text, i + 1) &&
        (i == 0 || !(is_digit(text[i - 1]) || is_ascii_letter(text[i - 1]) || text[i - 1] == '.'));
    if (!leading_dot && !is_digit(text[i])) continue;
    if (!is_glued(text, i)) return read_number(text, i);
    i = read_run(text, i).end - 1;
  }
  return std::nullopt;
}

bool same_number(const NumberInText& a, const NumberInText& b) {
  if (a.decimal && b.decimal) return *a.decimal == *b.decimal;
  const auto value_of = [](const NumberInText& n) {
    return n.decimal ? to_rational(*n.decimal) : n.fraction;
  };
  const std::optional<Rational> left = value_of(a);
  const std::optional<Rational> right = value_of(b);
  return left && right && *left == *right;
}

}  // namespace lockstep::tasks
