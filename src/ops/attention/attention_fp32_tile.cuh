// SPDX-License-Identifier: Apache-2.0
// Tiles of attention in binary32: 256 threads as 16 x 16 (ty, tx); matrices of up to 64 rows and 64 columns
// of the head size in shared memory, row-major. Every sum is a chain of fma in the order of docs/numerics.md;
// what a row must not see is skipped, not multiplied in.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "device/cuda/launch.h"
#include "numerics/constants.h"
#include "numerics/math.h"

namespace lockstep::ops::attention_fp32 {

inline constexpr int kThreads = 256;
inline constexpr int kWidth = 64;          // columns of the head size at once
inline constexpr int kPitch = kWidth + 4;  // 16-byte reads of 8 neighbouring rows hit all banks once
inline constexpr int kBlock = static_cast<int>(numerics::kKeyBlock);
inline constexpr int kTileFloats = kBlock * kPitch;

__device__ __forceinline__ int tx() {
  return static_cast<int>(threadIdx.x) & 15;
}
__device__ __forceinline__ int ty() {
  return static_cast<int>(threadIdx.x) >> 4;
}

// tile[r] = the first `width` elements at row(r), r < rows. vector: rows are 16-byte aligned, width % 4 == 0.
template <class Row>
__device__ __forceinline__ void load_tile(float* tile, int rows, int width, bool vector, const Row& row) {
  if (vector) {
    for (int f = static_cast<int>(threadIdx.x); f < rows * 16; f += kThreads) {
      const int r = f >> 4, c = (f & 15) * 4;
      if (c < width)
        *reinterpret_cast<float4*>(tile + r * kPitch + c) =
            __ldg(reinterpret_cast<const float4*>(row(r) + c));
    }
  } else {
    for (int f = static_cast<int>(threadIdx.x); f < rows * 64; f += kThreads) {
      const int r = f >> 6, c = f & 63;
      if (c < width) tile[r * kPitch + c] = __ldg(row(r) + c);
    }
  }
}

// s[r][c] continues its chain over columns 0 .. width-1 of a[ty + 16r] and b[tx + 16c].
template <int kR>
__device__ __forceinline__ void dot_tile(float (&s)[kR][4], const float* a, const float* b, int width) {
  const float* pa = a + ty() * kPitch;
  const float* pb = b + tx() * kPitch;
  int i = 0;
#pragma unroll 4
  for (; i + 4 <= width; i += 4) {
    float4 va[kR], vb[4];
#pragma unroll
    for (int r = 0; r < kR; ++r) va[r] = *reinterpret_cast<const float4*>(pa + r * 16 * kPitch + i);
#pragma unroll
    for (int c = 0; c < 4; ++c) vb[c] = *reinterpret_cast<const float4*>(pb + c * 16 * kPitch + i);
#pragma unroll
    for (int r = 0; r < kR; ++r)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s[r][c] = __fmaf_rn(va[r].x, vb[c].x, s[r][c]);
        s[r][c] = __fmaf_rn(va[r].y, vb[c].y, s[r][c]);
        s[r][c] = __fmaf_rn(va[r].z, vb[c].z, s[r][c]);
        s[r][c] = __fmaf_rn(va[r].w, vb[c].w, s[r][c]);
      }
  }
  for (; i < width; ++i) {
#pragma unroll
    for (int r = 0; r < kR; ++r)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        s[r][c] = __fmaf_rn(pa[r * 16 * kPitch + i], pb[c * 16 * kPitch + i], s[r][c]);
  }
}

// acc[r][e] continues its chain over keys 0 .. limit[r] (at most 63) of weights[ty + 16r][key] and
// values[key][4 tx + e]. all: every limit is 63 or more.
template <int kR>
__device__ __forceinline__ void weighted_sum(float (&acc)[kR][4], const float* weights, const float* values,
                                             const int (&limit)[kR], bool all) {
  const float* pw = weights + ty() * kPitch;
  const float* pv = values + tx() * 4;
  if (all) {
#pragma unroll 4
    for (int j = 0; j < kBlock; j += 4) {
      float4 w[kR];
#pragma unroll
      for (int r = 0; r < kR; ++r) w[r] = *reinterpret_cast<const float4*>(pw + r * 16 * kPitch + j);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const float4 v = *reinterpret_cast<const float4*>(pv + (j + step) * kPitch);
#pragma unroll
        for (int r = 0; r < kR; ++r) {
          const float x = step == 0 ? w[r].x : step == 1 ? w[r].y : step == 2 ? w[r].z : w[r].w;
          acc[r][0] = __fmaf_rn(x, v.x, acc[r][0]);
          acc[r][1] = __fmaf_rn(x, v.y, acc[r][1]);
          acc[r][2] = __fmaf_rn(x, v.z, acc[r][2]);
          acc[r][3] = __fmaf_rn(x, v.w, acc[r][3]);
        }
      }
    }
    return;
  }
  int last = -1;
#pragma unroll
  for (int r = 0; r < kR; ++r) last = max(last, min(limit[r], kBlock - 1));
  for (int j = 0; j <= last; ++j) {
    const float4 v = *reinterpret_cast<const float4*>(pv + j * kPitch);
#pragma unroll
    for (int r = 0; r < kR; ++r) {
      const float x = pw[r * 16 * kPitch + j];
      if (j <= limit[r]) {
        acc[r][0] = __fmaf_rn(x, v.x, acc[r][0]);
        acc[r][1] = __fmaf_rn(x, v.y, acc[r][1]);
        acc[r][2] = __fmaf_rn(x, v.z, acc[r][2]);
        acc[r][3] = __fmaf_rn(x, v.w, acc[r][3]);
      }
    }
  }
}

template <int kR>
__device__ __forceinline__ void clear(float (&acc)[kR][4]) {
#pragma unroll
  for (int r = 0; r < kR; ++r)
#pragma unroll
    for (int e = 0; e < 4; ++e) acc[r][e] = 0.0F;
}

// Columns of chunk c of a head of size d.
__device__ __forceinline__ int chunk_width(int d, int c) {
  return min(kWidth, d - c * kWidth);
}

}  // namespace lockstep::ops::attention_fp32
