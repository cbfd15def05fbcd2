// SPDX-License-Identifier: Apache-2.0
// The "Answer: 42" line of a response against an integer label.
#pragma once

#include <string_view>

namespace lockstep::tasks {

// +1 or -1. Reads the last 300 characters; the last "Answer:" (any case) counts, up to the end of its line.
double grade_dapo(std::string_view response, std::string_view label);

}  // namespace lockstep::tasks
