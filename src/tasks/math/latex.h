// SPDX-License-Identifier: Apache-2.0
// LaTeX of short answers as plain text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::tasks {

// \frac{a}{b} becomes a/b with parentheses where they are needed, \sqrt{a} sqrt(a), an integer before a
// fraction of integers a mixed number "3 1/2"; \cdot and \times *, \pi pi, \infty inf, \cup U, other symbols
// their character; \text and fonts their content, spacing commands a blank, \left and \right nothing. A
// command that is not known stays as written. None: nested beyond 64.
std::optional<std::string> latex_to_plain(std::string_view latex);

}  // namespace lockstep::tasks
