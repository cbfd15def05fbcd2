// SPDX-License-Identifier: Apache-2.0
// Graders by name (--rm-type), and what goes with a name.
#pragma once

#include <istream>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "tasks/grader.h"
#include "tasks/gsm8k/gsm8k_grader.h"  // label_from_gsm8k_answer

namespace lockstep::tasks {

// gsm8k, math, dapo, f1, and boxed_gsm8k, boxed_math, boxed_f1 (the grader on the content of the last box; 0
// without one).
std::vector<std::string> grader_names();

// Refuses an unknown name with the nearest known one.
Result<std::unique_ptr<Grader>> make_grader(const std::string& rm_type);

// What to add to a question, after a line feed, so that a model answers in the form the grader reads; ""
// where nothing is added (and for an unknown name).
std::string default_prompt_suffix(const std::string& rm_type);

// One JSON object a line in: {"response": string, "label": string or number}; one a line out, in the same
// order: {"reward": number}, or {"error": text, "line": number from 1} for a line that cannot be graded.
// Empty lines and a byte-order mark are passed over. Returns how many lines had an error. Fails on an unknown
// name (nothing is read) and on a failed write.
Result<int> debug_grade(const std::string& rm_type, std::istream& in, std::ostream& out);

}  // namespace lockstep::tasks
