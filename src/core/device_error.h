// SPDX-License-Identifier: Apache-2.0
// A device failed: lost, out of memory. Exceptional, so it is thrown and not passed on as a Status; the
// program reports it in one line with a remedy and exits with 4, the last checkpoint intact.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

class DeviceError : public std::runtime_error {
 public:
  explicit DeviceError(const std::string& what, bool out_of_memory = false)
      : std::runtime_error(what), out_of_memory_(out_of_memory) {}
  bool out_of_memory() const { return out_of_memory_; }

 private:
  bool out_of_memory_;
};

}  // namespace lockstep
