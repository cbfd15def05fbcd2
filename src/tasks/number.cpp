// SPDX-License-Identifier: Apache-2.0
#include "tasks/number.h"

#include <algorithm>

#include "tasks/text.h"

namespace lockstep::tasks {
namespace {

constexpr int64_t kMaxExponent = 1'000'000;
constexpr int64_t kMaxIntegerDigits = 1'000;
constexpr Int128 kSmallest = static_cast<Int128>(1) << 127;  // wraps to the smallest; refused everywhere

// [+-]?digits, all of the text, |value| <= kMaxExponent.
std::optional<int64_t> parse_exponent(std::string_view text) {
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  int64_t value = 0;
  for (const char c : text) {
    if (!is_digit(c)) return std::nullopt;
    value = std::min(value * 10 + (c - '0'), kMaxExponent + 1);
  }
  if (value > kMaxExponent) return std::nullopt;
  return negative ? -value : value;
}

std::string plus_one(std::string digits) {
  for (size_t i = digits.size(); i > 0; --i) {
    if (digits[i - 1] != '9') {
      ++digits[i - 1];
      return digits;
    }
    digits[i - 1] = '0';
  }
  return "1" + digits;
}

}  // namespace

std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal out;
  size_t i = 0;
  if (i < text.size() && (text[i] == '+' || text[i] == '-')) out.negative = text[i++] == '-';
  bool any = false;
  bool dot = false;
  for (; i < text.size(); ++i) {
    if (is_digit(text[i])) {
      any = true;
      out.digits += text[i];
      out.exponent -= dot ? 1 : 0;
    } else if (text[i] == '.' && !dot) {
      dot = true;
    } else {
      break;
    }
  }
  if (!any) return std::nullopt;
  if (i < text.size()) {
    if (text[i] != 'e' && text[i] != 'E') return std::nullopt;
    const std::optional<int64_t> exponent = parse_exponent(text.substr(i + 1));
    if (!exponent) return std::nullopt;
    out.exponent += *exponent;
  }
  const size_t end = out.digits.find_last_not_of('0');
  if (end == std::string::npos) return Decimal{};
  out.exponent += static_cast<int64_t>(out.digits.size() - end - 1);
  out.digits.resize(end + 1);
  out.digits.erase(0, out.digits.find_first_not_of('0'));
  return out;
}

std::optional<std::string> near_integer(const Decimal& value) {
  const int64_t size = static_cast<int64_t>(value.digits.size());
  const int64_t integer_digits = size + value.exponent;  // may be negative: 0.00..
  if (integer_digits > kMaxIntegerDigits) return std::nullopt;
  std::string integer = value.digits.substr(0, static_cast<size_t>(std::max<int64_t>(integer_digits, 0)));
  if (value.exponent >= 0) {
    integer.append(static_cast<size_t>(value.exponent), '0');
  } else {
    // The first 7 digits after the dot decide; what follows them only tells 1e-7 from more than 1e-7.
    std::string fraction;
    for (int64_t i = integer_digits; i < integer_digits + 8; ++i) {
      fraction += i >= 0 && i < size ? value.digits[static_cast<size_t>(i)] : '0';
    }
    const std::string head = fraction.substr(0, 7);
    const bool ends_there = size <= integer_digits + 7;
    if (head == "9999999") {
      integer = plus_one(integer);
    } else if (head != "0000000" && !(head == "0000001" && ends_there)) {
      return std::nullopt;
    }
  }
  if (integer.empty()) return "0";
  return (value.negative ? "-" : "") + integer;
}

Int128 gcd(Int128 a, Int128 b) {
  a = a < 0 ? -a : a;
  b = b < 0 ? -b : b;
  while (b != 0) {
    if (a <= INT64_MAX && b <= INT64_MAX) {  // 64-bit division is several times as fast
      uint64_t x = static_cast<uint64_t>(a);
      uint64_t y = static_cast<uint64_t>(b);
      while (y != 0) {
        const uint64_t rest = x % y;
        x = y;
        y = rest;
      }
      return static_cast<Int128>(x);
    }
    const Int128 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

std::optional<Rational> make_rational(Int128 num, Int128 den) {
  if (den == 0 || num == kSmallest || den == kSmallest) return std::nullopt;
  const Int128 common = gcd(num, den) * (den < 0 ? -1 : 1);
  return Rational{num / common, den / common};
}

std::optional<Rational> add(const Rational& a, const Rational& b) {
  const Int128 common = gcd(a.den, b.den);
  Int128 left = 0;
  Int128 right = 0;
  Int128 num = 0;
  Int128 den = 0;
  if (__builtin_mul_overflow(a.num, b.den / common, &left) ||
      __builtin_mul_overflow(b.num, a.den / common, &right) || __builtin_add_overflow(left, right, &num) ||
      __builtin_mul_overflow(a.den, b.den / common, &den)) {
    return std::nullopt;
  }
  return make_rational(num, den);
}

std::optional<Rational> multiply(const Rational& a, const Rational& b) {
  if (a.is_zero() || b.is_zero()) return Rational{};
  const Int128 left = gcd(a.num, b.den);
  const Int128 right = gcd(b.num, a.den);
  Int128 num = 0;
  Int128 den = 0;
  if (__builtin_mul_overflow(a.num / left, b.num / right, &num) ||
      __builtin_mul_overflow(a.den / right, b.den / left, &den)) {
    return std::nullopt;
  }
  return make_rational(num, den);
}

std::optional<Rational> divide(const Rational& a, const Rational& b) {
  if (b.is_zero()) return std::nullopt;
  return multiply(a, b.num > 0 ? Rational{b.den, b.num} : Rational{-b.den, -b.num});
}

std::optional<Rational> to_rational(const Decimal& value) {
  constexpr int64_t kMaxPower = 38;  // 10^38 < 2^127
  if (value.exponent > kMaxPower || value.exponent < -kMaxPower) return std::nullopt;
  Int128 digits = 0;
  for (const char c : value.digits) {
    if (__builtin_mul_overflow(digits, static_cast<Int128>(10), &digits)) return std::nullopt;
    if (__builtin_add_overflow(digits, static_cast<Int128>(c - '0'), &digits)) return std::nullopt;
  }
  if (value.negative) digits = -digits;
  Int128 power = 1;
  for (int64_t i = 0; i < std::abs(value.exponent); ++i) power *= 10;
  if (value.exponent < 0) return make_rational(digits, power);
  return multiply(Rational{digits, 1}, Rational{power, 1});
}

}  // namespace lockstep::tasks
