// SPDX-License-Identifier: Apache-2.0
// What kernels share: the check after a launch, fault reports, grid sizes. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "device/cuda/context.h"
#include "device/cuda/error.h"

namespace lockstep::cuda {

// After every <<<>>>; `what` names the op.
inline void check_launch(const char* what) {
  check(cudaGetLastError(), what);
}

// Lets a kernel have `bytes` of dynamic shared memory; asked for once, by the first launch. `what` names the
// op.
template <auto kKernel>
void allow_shared(int bytes, const char* what) {
  static const bool allowed = [&] {
    const std::string task = std::string("setting the shared memory of ") + what;
    check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), task.c_str());
    return true;
  }();
  (void)allowed;
}

inline unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

__device__ __forceinline__ void report(const Fault& fault, unsigned long long detail = 0) {
  atomicMin(fault.at, fault.key + detail);
}

}  // namespace lockstep::cuda
