// SPDX-License-Identifier: Apache-2.0
// What the attention kernels of profile bf16 share: tiles in shared memory, the tensor core's instructions,
// the arithmetic of a score. A tile is 64 rows of `panels` times 64 columns; a panel is [64][64] bfloat16
// with the 16-byte chunks of a row permuted by chunk ^ (row % 8), the 128-byte swizzle of wgmma, 1024-byte
// aligned.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "device/cuda/copy_engine.cuh"
#include "numerics/bfloat16.h"
#include "numerics/constants.h"
#include "numerics/math.h"

namespace lockstep::ops::attention {

using cuda::hopper::fence_async;
using cuda::hopper::shared_address;
using numerics::Bf16;

inline constexpr int kRows = 64;                   // rows of a tile
inline constexpr int kPanelBytes = 8192;           // 64 rows of 128 bytes
inline constexpr int kWarpgroup = 128;             // threads
inline constexpr float kUndefined = -16777216.0F;  // M before the first key: below every M
inline constexpr float kFloor = static_cast<float>(numerics::kWeightFloor);

// ---- copies into tiles ----

__device__ __forceinline__ void copy_16(uint32_t to, const void* from, bool there) {
  const int bytes = there ? 16 : 0;  // the rest of the 16 bytes is zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ __forceinline__ void copy_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Rows [low, high) of 64 rows at `from` (row stride ld, d columns) by kThreads threads; all else of the tile
// is zero. vector: rows are 16-byte aligned and d is a multiple of 8; asynchronous then.
template <int kPanels, int kThreads>
__device__ __forceinline__ void load_tile(char* tile, const Bf16* from, int64_t ld, int low, int high, int d,
                                          bool vector, int thread) {
  constexpr int kChunks = 8 * kPanels;       // of a row
  constexpr int kStep = kThreads / kChunks;  // rows at a time
  const int chunk = thread % kChunks;
  const int first = thread / kChunks;
  if (vector) {
    const uint32_t base = shared_address(tile) + chunk / 8 * kPanelBytes;
    const Bf16* source = from + first * ld + chunk * 8;
    const bool column = chunk * 8 < d;
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i) {
      const int row = first + i * kStep;
      copy_16(base + row * 128 + ((chunk % 8 ^ (row & 7)) << 4), source, column && row >= low && row < high);
      source += kStep * ld;
    }
  } else {
#pragma unroll 1
    for (int i = thread; i < kRows * kChunks * 8; i += kThreads) {
      const int row = i / (kChunks * 8);
      const int column = i % (kChunks * 8);
      const bool there = row >= low && row < high && column < d;
      char* to =
          tile + column / 64 * kPanelBytes + row * 128 + ((column / 8 % 8 ^ (row & 7)) << 4) + column % 8 * 2;
      *reinterpret_cast<Bf16*>(to) = there ? from[row * ld + column] : Bf16{0};
    }
  }
}

// ---- tensor core ----

// Descriptor of a panel for wgmma: 128-byte swizzle, 8 rows every 1024 bytes; for both orders of the operand.
__device__ __forceinline__ uint64_t panel_descriptor(const char* panel) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kStride = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kLeading = uint64_t{1} << 16;
  return kSwizzle128 | kStride | kLeading | ((shared_address(panel) & 0x3FFFFU) >> 4);
}
inline constexpr uint64_t kStepAcross = 32 >> 4;  // 16 columns on: the operand's columns are the steps
inline constexpr uint64_t kStepDown = 2048 >> 4;  // 16 rows on: the operand's rows are the steps
inline constexpr uint64_t kStepPanel = kPanelBytes >> 4;

__device__ __forceinline__ void mma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void mma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define LOCKSTEP_ACC32(x)                                                                                   \
  "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]), "+f"(x[6]), "+f"(x[7]),           \
      "+f"(x[8]), "+f"(x[9]), "+f"(x[10]), "+f"(x[11]), "+f"(x[12]), "+f"(x[13]), "+f"(x[14]), "+f"(x[15]), \
      "+f"(x[16]), "+f"(x[17]), "+f"(x[18]), "+f"(x[19]), "+f"(x[20]), "+f"(x[21]), "+f"(x[22]),            \
      "+f"(x[23]), "+f"(x[24]), "+f"(x[25]), "+f"(x[26]), "+f"(x[27]), "+f"(x[28]), "+f"(x[29]),            \
      "+f"(x[30]), "+f"(x[31])
#define LOCKSTEP_LIST32                                                                              \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
  "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// acc [64 rows][64] (+)= A B, 16 steps; A and B in shared memory, the steps are the columns of both.
// start: acc begins at +0.
__device__ __forceinline__ void mma_across(float (&acc)[32], uint64_t a, uint64_t b, bool start) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.s32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " LOCKSTEP_LIST32 ", %32, %33, p, 1, 1, 0, 0;\n}"
      : LOCKSTEP_ACC32(acc)
      : "l"(a), "l"(b), "r"(static_cast<int>(start)));
}
// The same with A in registers and the steps the rows of B.
__device__ __forceinline__ void mma_down(float (&acc)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " LOCKSTEP_LIST32
               ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n}"
               : LOCKSTEP_ACC32(acc)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// acc = A B^T over the columns of two tiles; groups of 16 zeros change nothing.
template <int kPanels>
__device__ __forceinline__ void mma_tiles(float (&acc)[32], const char* a, const char* b) {
  const uint64_t first_a = panel_descriptor(a);
  const uint64_t first_b = panel_descriptor(b);
#pragma unroll
  for (int step = 0; step < 4 * kPanels; ++step) {
    const uint64_t at = (step / 4) * kStepPanel + (step % 4) * kStepAcross;
    mma_across(acc, first_a + at, first_b + at, step == 0);
  }
}

// ---- arithmetic ----

// low and high rounded to bfloat16 (nearest even), as the halves of a register.
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ __forceinline__ float low_half(uint32_t both) {
  return __uint_as_float(both << 16);
}
__device__ __forceinline__ float high_half(uint32_t both) {
  return __uint_as_float(both & 0xFFFF0000U);
}

// A score s as t = s + 1.5 * 2^23: its integer part n sits in the low bits of t, and t << 23 is n << 23.
__device__ __forceinline__ float shifted(float s) {
  return s + numerics::kRoundEvenMagic;
}
// exp2_fraction(s - n) * scale * 2^n, `scale` given as its bits; one rounding (none where scale is a power of
// two). Right where 2^-40 <= 2^n * scale' <= 1 for the scale' without the sum's inverse.
__device__ __forceinline__ float weight(float s, float t, uint32_t scale) {
  const float fraction = s - (t - numerics::kRoundEvenMagic);
  return numerics::exp2_fraction(fraction) * __uint_as_float((__float_as_uint(t) << 23) + scale);
}
__device__ __forceinline__ uint32_t exponent_bits(float m) {
  return static_cast<uint32_t>(static_cast<int>(m)) << 23;
}
// scale_by_pow2(x, e) for e <= 0, an integer as a float.
struct Lowering {
  float factor;
  bool to_zero;
  __device__ __forceinline__ explicit Lowering(float e)
      : factor(numerics::pow2f(static_cast<int>(fmaxf(e, -126.0F)))), to_zero(e < -126.0F) {}
  __device__ __forceinline__ float operator()(float x) const {
    const float product = x * factor;
    return to_zero ? 0.0F : product;
  }
};

// The least of 32 numbers, NaN left out.
__device__ __forceinline__ float least_of(const float (&x)[32]) {
  float least[4] = {x[0], x[1], x[2], x[3]};
#pragma unroll
  for (int i = 4; i < 32; ++i) least[i % 4] = fminf(least[i % 4], x[i]);
  return fminf(fminf(least[0], least[1]), fminf(least[2], least[3]));
}

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 2));
}
// The eight lanes of a row, two a thread of the quad, folded.
__device__ __forceinline__ float fold_quad(float even, float odd) {
  float x = even + odd;
  x = x + __shfl_xor_sync(0xFFFFFFFFU, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFU, x, 2);
}

__device__ __forceinline__ void warpgroup_barrier(int warpgroup) {
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}

}  // namespace lockstep::ops::attention
