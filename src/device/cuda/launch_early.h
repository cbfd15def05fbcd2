// SPDX-License-Identifier: Apache-2.0
// Launches that overlap the one before (programmatic dependent launch): what costs the start of a small
// kernel is paid while the last one still runs. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

#include "device/cuda/context.h"
#include "device/cuda/error.h"

namespace lockstep::cuda {

// The kernel may start before the launch ahead of it on the stream has ended, where the GPU can: its first
// act, before it reads or writes global memory, is wait_for_launch_before(). It may not read through pointers
// that are const and __restrict__ what launches before it write: such loads need not see it. In clusters
// of `cluster` neighbouring blocks, which divide the grid; more than 1 on Hopper only.
template <typename... Parameters, typename... Arguments>
void launch_early_clusters(const Context& context, const char* what, void (*kernel)(Parameters...), dim3 grid,
                           unsigned cluster, unsigned threads, size_t shared_bytes,
                           const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream();
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  config.attrs = attributes;
  config.numAttrs = !context.info().hopper() ? 0 : cluster == 1 ? 1 : 2;  // code for others does not wait
  check(cudaLaunchKernelEx(&config, kernel, static_cast<std::decay_t<Parameters>>(arguments)...), what);
}
// Without clusters.
template <typename... Parameters, typename... Arguments>
void launch_early(const Context& context, const char* what, void (*kernel)(Parameters...), dim3 grid,
                  unsigned threads, size_t shared_bytes, const Arguments&... arguments) {
  launch_early_clusters(context, what, kernel, grid, 1, threads, shared_bytes, arguments...);
}
__device__ __forceinline__ void wait_for_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next launch may start once every block has called this or ended; it waits itself for what it reads.
// Called after wait_for_launch_before(), so that what is ahead of this launch has ended by then; a product,
// which has but weights to read early, may call it first.
__device__ __forceinline__ void let_next_launch_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace lockstep::cuda
