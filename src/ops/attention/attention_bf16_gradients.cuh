// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention's backward in profile bf16 share: their arguments, a group of a chain, the
// way of the sums to memory.
#pragma once

#include "ops/attention/attention_bf16_cuda.h"
#include "ops/attention/attention_bf16_tiles.cuh"

namespace lockstep::ops::attention {

// Of a row and head, [heads][rows]. Padding rows: zeros, which make P and dS +0.
struct Statistics {
  uint4* pairs;  // of two rows: bits of r - (M << 23) of both, D of both
  float* floor;  // M - 40
  int64_t rows;  // a multiple of 16
};

struct BackwardArguments {
  AttentionSamplesCuda samples;
  const Bf16* q;
  const Bf16* k;
  const Bf16* v;
  const Bf16* out;
  const Bf16* d_out;
  const float* max_exponent;
  const float* inverse_sum;
  AttentionRope rope;
  Bf16* d_qkv;
  int64_t ld, ldo;
  Statistics statistics;
  int heads, kv_heads, d, head_tiles, chunk_groups;
  int statistics_tiles;  // of 16 rows, of the longest sample
  float scale, gradient_scale;
  bool vector, vector_out;
};

// acc += the 16 steps of group `step`: the operand's columns by rows 16 * step on of a tile.
template <int kOut>
__device__ __forceinline__ void mma_group(float (&acc)[kOut][32], const uint32_t (&operand)[16], int step,
                                          const char* tile) {
  const uint32_t a[4] = {operand[4 * step], operand[4 * step + 1], operand[4 * step + 2],
                         operand[4 * step + 3]};
#pragma unroll
  for (int panel = 0; panel < kOut; ++panel)
    mma_down(acc[panel], a, panel_descriptor(tile) + panel * kStepPanel + step * kStepDown);
}

// ---- results ----

// Rows of binary32 sums wait in shared memory for the rotation; the 8-float groups of a row are permuted.
__device__ __forceinline__ int staged_at(int row, int column, int width) {
  return row * width + (column ^ ((row & 7) << 3));
}
template <int kOut>
__device__ __forceinline__ void stage(float* staged, int width, int first_column,
                                      const float (&acc)[kOut][32], float scale, int own) {
  const int lane = own % 32;
#pragma unroll
  for (int panel = 0; panel < kOut; ++panel) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = own / 32 * 16 + lane / 4 + 8 * i;
        const int column = first_column + panel * 64 + 8 * j + 2 * (lane % 4);
        const float2 both = {acc[panel][4 * j + 2 * i] * scale, acc[panel][4 * j + 2 * i + 1] * scale};
        *reinterpret_cast<float2*>(staged + staged_at(row, column, width)) = both;
      }
    }
  }
}

// kElements neighbouring pairs of a row of binary32 sums; they are 16-byte aligned where kElements is 8.
template <int kElements>
__device__ __forceinline__ void load_floats(const float* from, float (&to)[kElements]) {
  if constexpr (kElements == 8) {
    const float4 low = *reinterpret_cast<const float4*>(from);
    const float4 high = *reinterpret_cast<const float4*>(from + 4);
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
  } else {
    to[0] = from[0];
  }
}
template <int kElements>
__device__ __forceinline__ void store_rounded(const float (&x)[kElements], Bf16* to) {
  if constexpr (kElements == 8) {
    *reinterpret_cast<uint4*>(to) =
        make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
  } else {
    to[0] = static_cast<Bf16>(pack(x[0], 0.0F) & 0xFFFFU);
  }
}

// Rows [0, there) of d columns to `to`, RoPE undone where the tables are not null (`position`: of row 0),
// rounded; rows [there, padded) as zeros.
template <int kElements>
__device__ __forceinline__ void store_elements(const float* staged, int width, int there, int padded, int d,
                                               const float* cos, const float* sin, int position, Bf16* to,
                                               int64_t ld, int own) {
  const int half = d / 2;
  const int steps = half / kElements;
  for (int item = own; item < padded * steps; item += kWarpgroup) {
    const int row = item / steps;
    const int column = item % steps * kElements;
    float x[kElements] = {};
    float y[kElements] = {};
    if (row < there) {
      load_floats(staged + staged_at(row, column, width), x);
      load_floats(staged + staged_at(row, column + half, width), y);
      if (cos != nullptr) {
        const int64_t angle = static_cast<int64_t>(position + row) * half + column;
        float cosine[kElements];
        float sine[kElements];
        load_floats(cos + angle, cosine);
        load_floats(sin + angle, sine);
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          const float a = x[e];
          const float b = y[e];
          x[e] = fmaf(a, cosine[e], -(b * -sine[e]));
          y[e] = fmaf(b, cosine[e], a * -sine[e]);
        }
      }
    }
    store_rounded(x, to + row * ld + column);
    store_rounded(y, to + row * ld + column + half);
  }
}
// vector: d is a multiple of 16, rows of `to` and the tables are 16-byte aligned.
__device__ __forceinline__ void store(const float* staged, int width, int there, int padded, int d,
                                      const float* cos, const float* sin, int position, Bf16* to, int64_t ld,
                                      bool vector, int own) {
  if (vector) {
    store_elements<8>(staged, width, there, padded, d, cos, sin, position, to, ld, own);
  } else {
    store_elements<1>(staged, width, there, padded, d, cos, sin, position, to, ld, own);
  }
}

}  // namespace lockstep::ops::attention
