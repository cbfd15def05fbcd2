// SPDX-License-Identifier: Apache-2.0
// The library side of `lockstep debug tokenize` and `debug template`: JSON lines in, one JSON line out for
// each (blank lines give none). A line that cannot be answered gives {"error": reason, "line": number}; the
// others are answered all the same.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "core/status.h"

namespace lockstep::data {

// {"text": ...} -> {"ids": [...]}: added tokens are found, nothing is added; "add_special_tokens": true adds
// what the post-processor adds. {"ids": [...]} -> {"text": ...}. Other keys are errors.
// Returns the number of lines with errors; an error when the folder cannot be read.
Result<int64_t> debug_tokenize(const std::string& folder, std::istream& in, std::ostream& out);

// {"messages": [...], "add_generation_prompt": bool} -> {"text": ...}. Other keys are variables of the
// template
// ("tools", "enable_thinking", ...), except "control_tokens" ("compatible" or "safe"), with which "ids" come
// too.
Result<int64_t> debug_template(const std::string& folder, std::istream& in, std::ostream& out);

}  // namespace lockstep::data
