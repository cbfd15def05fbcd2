// SPDX-License-Identifier: Apache-2.0
// Known answers: one line each of tests/data/numerics/vectors.txt (docs/numerics.md, Known answers).
#pragma once

#include <string>
#include <vector>

#include "core/status.h"

namespace lockstep::numerics {

// "name arguments..." -> the answer, as the file writes it. Invalid: an unknown name or a malformed argument.
Result<std::string> evaluate_vector(const std::string& question);

// The questions of the file, in its order.
std::vector<std::string> vector_questions();

// The whole file: comment lines, then "question = answer".
std::string vectors_text();

}  // namespace lockstep::numerics
