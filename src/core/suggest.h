// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the nearest of some names, for error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The name with the smallest edit distance (ties: the first), or "" when none is within a third of the wanted
// one's length + 2 and half the longer one's length.
std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace lockstep
