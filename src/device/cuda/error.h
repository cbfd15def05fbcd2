// SPDX-License-Identifier: Apache-2.0
// Errors of the CUDA runtime. They are exceptional: the device is lost, out of memory, or the program is
// wrong. The loop catches them, names them and exits with 4; the last checkpoint is intact.
#pragma once

#include <string>

#include "core/device_error.h"

namespace lockstep::cuda {

class Error : public DeviceError {
 public:
  // code: a cudaError_t. doing: what was being done, e.g. "allocating 3 GiB for the KV cache".
  Error(int code, const std::string& doing);
  int code() const { return code_; }

 private:
  int code_;
};

// Throws Error when `code` (a cudaError_t) is not success.
void check(int code, const char* doing);

}  // namespace lockstep::cuda
