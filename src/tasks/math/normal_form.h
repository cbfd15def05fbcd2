// SPDX-License-Identifier: Apache-2.0
// The two normal forms of a math answer (docs/graders.md).
#pragma once

#include <string>
#include <string_view>

namespace lockstep::tasks {

// Form 1: for comparison as strings, close to the LaTeX as written.
std::string latex_form(std::string_view answer);

// Form 2: plain lower-case text without blanks or braces, for comparison by value.
std::string plain_form(std::string_view answer);

// Form 2 of both: equal, or equal element by element. `given` and `wanted` are results of plain_form.
bool plain_forms_agree(std::string_view given, std::string_view wanted);

}  // namespace lockstep::tasks
