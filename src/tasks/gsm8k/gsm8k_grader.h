// SPDX-License-Identifier: Apache-2.0
// GSM8K: the number a response ends with against the number of the label, exactly.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::tasks {

// 1 or 0. The answer is the first number on the first line with text after the last "####", else the last
// number of the response; what counts as a number is in docs/graders.md. A label that is not one number never
// pays, nor does a response without a readable number in that place.
double grade_gsm8k(std::string_view response, std::string_view label);

// The label of a GSM8K row: the text after the last "####" of its answer, stripped; "" when there is none.
std::string label_from_gsm8k_answer(std::string_view answer);

}  // namespace lockstep::tasks
