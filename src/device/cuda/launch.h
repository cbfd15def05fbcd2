// SPDX-License-Identifier: Apache-2.0
// What kernels share: the check after a launch, fault reports, grid sizes. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "device/cuda/context.h"
#include "device/cuda/error.h"

namespace lockstep::cuda {

// After every <<<>>>; `what` names the op.
inline void check_launch(const char* what) {
  check(cudaGetLastError(), what);
}

inline unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

__device__ __forceinline__ void report(const Fault& fault, unsigned long long detail = 0) {
  atomicMin(fault.at, fault.key + detail);
}

}  // namespace lockstep::cuda
