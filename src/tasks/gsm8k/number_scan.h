// SPDX-License-Identifier: Apache-2.0
// Numbers inside running text: "$1,234.50", "-7", "5 1/2", "\frac{1}{2}", "1e3".
#pragma once

#include <optional>
#include <string_view>

#include "tasks/number.h"

namespace lockstep::tasks {

struct NumberInText {
  size_t end = 0;  // the byte after it
  // Neither when the digits are no number ("7,0000", "1.2.3", "1/0"): it was found, and equals nothing.
  std::optional<Decimal> decimal;
  std::optional<Rational> fraction;

  bool readable() const { return decimal.has_value() || fraction.has_value(); }
};

// The first number that starts at or after `from`, or none. The whole text is passed because signs and
// letters before the number matter. Linear over a left-to-right walk.
std::optional<NumberInText> next_number(std::string_view text, size_t from);

// Exact; false when one is not readable. A fraction beyond 128 bits equals nothing.
bool same_number(const NumberInText& a, const NumberInText& b);

}  // namespace lockstep::tasks
