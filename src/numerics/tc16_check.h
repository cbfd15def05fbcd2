// SPDX-License-Identifier: Apache-2.0
// Compares tc16.h with a file of results of a tensor core (docs/numerics.md, TC16).
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"

namespace lockstep::numerics {

struct Tc16Check {
  int64_t equal = 0;
  int64_t total = 0;
  int64_t first_difference = -1;  // index of a result in file order; -1: none
};

// Invalid when the file can not be read, is not of this format or has another size than its header says.
Result<Tc16Check> check_tc16_file(const std::string& path);

}  // namespace lockstep::numerics
