// SPDX-License-Identifier: Apache-2.0
// A device failed: lost, out of memory. Exceptional, so it is thrown and not passed on as a Status; the
// program reports it in one line and exits with 4, the last checkpoint intact.
#pragma once

#include <stdexcept>

namespace lockstep {

class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep
