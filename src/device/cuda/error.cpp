// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/error.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace lockstep::cuda {

Error::Error(int code, const std::string& doing)
    : DeviceError(fmt::format("CUDA error while {}: {} ({})", doing,
                              cudaGetErrorString(static_cast<cudaError_t>(code)),
                              cudaGetErrorName(static_cast<cudaError_t>(code))),
                  code == cudaErrorMemoryAllocation),
      code_(code) {}

void check(int code, const char* doing) {
  if (code != cudaSuccess) throw Error(code, doing);
}

}  // namespace lockstep::cuda
