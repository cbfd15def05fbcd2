// SPDX-License-Identifier: Apache-2.0
// The Hopper instructions that the products use, one function each, beside those of
// device/cuda/copy_engine.cuh: copies and barriers of clusters, the warpgroup's matrix descriptors and
// fences. Device code for sm_90a only. Shared addresses are 32-bit.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "device/cuda/copy_engine.cuh"

namespace lockstep::ops::hopper {

using namespace cuda::hopper;  // NOLINT(google-build-using-namespace): one set of instructions

// Arrives at the same barrier of block `rank` of the cluster. What it releases are reads of the tensor cores,
// which wgmma_wait has seen end; no ordinary access is ordered, so that no fence of the whole GPU is made.
__device__ __forceinline__ void barrier_arrive_remote(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// A stage is not needed any more: tells the producers of all `blocks` blocks of the cluster that copied into
// it. By the threads of a warp.
__device__ __forceinline__ void release_stage(uint32_t barrier, int blocks, int lane) {
  if (lane < blocks) {
    if (blocks == 1) {
      barrier_arrive(barrier);
    } else {
      barrier_arrive_remote(barrier, static_cast<uint32_t>(lane));
    }
  }
}
// A place in a ring of stages: its number and the parity of its round.
template <int kStages>
struct Ring {
  uint32_t stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// copy_box to the same address, and barrier, of every block of the cluster in `mask`.
__device__ __forceinline__ void copy_box_multicast(uint32_t to, const CUtensorMap* map, int column, int row,
                                                   uint32_t barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(mask)
      : "memory");
}

// Stores to `to` of block `rank` of the cluster; the 4 bytes complete on `barrier` there.
__device__ __forceinline__ void store_remote(uint32_t to, int value, uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote, remote_barrier;\n"
      "mapa.shared::cluster.u32 remote, %0, %3;\n"
      "mapa.shared::cluster.u32 remote_barrier, %2, %3;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [remote], %1, [remote_barrier];\n}" ::"r"(
          to),
      "r"(value), "r"(barrier), "r"(rank)
      : "memory");
}

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same, without ordering any access.
__device__ __forceinline__ void cluster_sync_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

template <int kRegisters>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Barrier `id` (1..15) among `threads` threads of the block.
__device__ __forceinline__ void sync_threads(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Operand with k contiguous: rows of 64 elements (128 bytes, swizzled); a step of 16 is 32 bytes further.
__device__ __forceinline__ uint64_t descriptor_k_major(uint32_t address) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 16) |
         ((address & 0x3FFFFU) >> 4);
}
// Operand with k outermost: blocks of [64 k][64 elements] (128 bytes a row, swizzled), 8192 bytes from block
// to block; a step of 16 is 2048 bytes further.
__device__ __forceinline__ uint64_t descriptor_k_outer(uint32_t address) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{8192 >> 4} << 16) |
         ((address & 0x3FFFFU) >> 4);
}
template <bool kOuter>
__device__ __forceinline__ uint64_t descriptor(uint32_t address, int step) {
  return kOuter ? descriptor_k_outer(address) + static_cast<uint32_t>(step) * (2048 >> 4)
                : descriptor_k_major(address) + static_cast<uint32_t>(step) * (32 >> 4);
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of the accumulators over a fence or a wait.
template <int kCount>
__device__ __forceinline__ void pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace lockstep::ops::hopper
