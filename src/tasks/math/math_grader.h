// SPDX-License-Identifier: Apache-2.0
// The last \boxed{...} of a response against a LaTeX label, by form or by exact algebra.
#pragma once

#include <string_view>

namespace lockstep::tasks {

// 1 or 0. 0 without a closed last box, and for an empty answer. A label with a box counts by its last box.
double grade_math(std::string_view response, std::string_view label);

// The comparison itself: is `answer` (the content of the box) right?
bool math_answers_agree(std::string_view answer, std::string_view label);

}  // namespace lockstep::tasks
