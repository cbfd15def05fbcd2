// SPDX-License-Identifier: Apache-2.0
// Token F1 of two texts.
#pragma once

#include <string_view>

namespace lockstep::tasks {

// In [0, 1]: 2PR/(P+R) in binary64, in that order, over the bags of words of both texts after lower case,
// ASCII punctuation off and the words a, an, the off. "yes", "no" and "noanswer" as a whole text pay only
// when both are the same.
double grade_f1(std::string_view response, std::string_view label);

}  // namespace lockstep::tasks
