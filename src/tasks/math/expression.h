// SPDX-License-Identifier: Apache-2.0
// Are two plain expressions ("2x+sqrt(3)/2") the same function? Exact; see algebra.h for what is decided.
#pragma once

#include <string_view>

namespace lockstep::tasks {

// False whenever either side is not understood: more than two distinct letters in both together (sqrt and
// frac aside), "^{", "^(", an exponent of two digits, "^n^", any sign but + - * / ^ ! ( ), nesting beyond 64,
// more than 2,000 bytes, numbers beyond 128 bits, or more work than a few milliseconds.
bool symbolically_equal(std::string_view a, std::string_view b);

}  // namespace lockstep::tasks
