// SPDX-License-Identifier: Apache-2.0
// A readable listing of what verify can compare.
#pragma once

#include <string>

#include "core/status.h"

namespace lockstep::verify {

struct InspectOptions {
  bool digests = true;  // of every tensor; reads all bytes
  bool statistics =
      false;  // minimum, maximum, mean and the number of NaN and infinities of F32, BF16 and F16
};

// Lines that end in a newline. kInvalid: not there, not readable, or of no known kind.
Result<std::string> inspect_path(const std::string& path, const InspectOptions& options = {});

}  // namespace lockstep::verify
