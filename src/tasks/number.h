// SPDX-License-Identifier: Apache-2.0
// Exact numbers: decimals of any length, and rationals of 128 bits whose overflow is seen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::tasks {

__extension__ using Int128 = __int128;

// (+-) digits * 10^exponent, without zeros at either end of the digits; zero is "" * 10^0, never negative.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;

  bool operator==(const Decimal&) const = default;
};

// All of the text: sign, digits with at most one dot, exponent (e or E). "72.", ".5", "007" and "1e3" are
// numbers; "", ".", "1_0", "inf" and exponents beyond +-1,000,000 are not.
std::optional<Decimal> parse_decimal(std::string_view text);

// The integer (canonical digits) within 1e-7 of the value; none if there is none, or if it would have more
// than 1,000 digits.
std::optional<std::string> near_integer(const Decimal& value);

// Lowest terms, den > 0.
struct Rational {
  Int128 num = 0;
  Int128 den = 1;

  bool operator==(const Rational&) const = default;
  bool is_zero() const { return num == 0; }
  bool is_integer() const { return den == 1; }
};

Int128 gcd(Int128 a, Int128 b);  // of the absolute values; neither is the smallest Int128
// None: a zero denominator, or a part does not fit.
std::optional<Rational> make_rational(Int128 num, Int128 den);
std::optional<Rational> add(const Rational& a, const Rational& b);
std::optional<Rational> multiply(const Rational& a, const Rational& b);
std::optional<Rational> divide(const Rational& a, const Rational& b);
std::optional<Rational> to_rational(const Decimal& value);

}  // namespace lockstep::tasks
