// SPDX-License-Identifier: Apache-2.0
// What happens to the sums of a product: bias, RoPE, SwiGLU, rounding. Tiles are in the accumulators' layout
// (matmul_wgmma.h): each thread holds both elements of every pair that RoPE needs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "numerics/bfloat16.h"
#include "numerics/math.h"
#include "ops/matmul/matmul_bf16_cuda.h"

namespace lockstep::ops {

struct EpilogueArguments {
  int m = 0, n = 0;  // of the result; kSwiglu: n = f
  const Bf16* bias = nullptr;
  const Bf16* residual = nullptr;
  int64_t ld_residual = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  const int32_t* positions = nullptr;
  int head_size = 0;
  int rope_columns = 0;
  void* out = nullptr;
  int64_t ld_out = 0;
  Bf16* act = nullptr;
  int64_t ld_act = 0;
};

inline EpilogueArguments epilogue_arguments(const MatmulForwardBf16& forward, int64_t m, int64_t n) {
  EpilogueArguments e;
  e.m = static_cast<int>(m);
  e.n = static_cast<int>(forward.output == MatmulOutput::kSwiglu ? n / 2 : n);
  e.bias = forward.bias;
  e.residual = forward.residual;
  e.ld_residual = forward.ld_residual;
  e.cos = forward.rope.cos;
  e.sin = forward.rope.sin;
  e.positions = forward.rope.positions;
  e.head_size = static_cast<int>(forward.rope.head_size);
  e.rope_columns = static_cast<int>(forward.rope.columns);
  e.out = forward.out;
  e.ld_out = forward.ld_out;
  e.act = forward.act;
  e.ld_act = forward.ld_act;
  return e;
}

// bf16(low) | bf16(high) << 16. Every NaN that comes here is the machine's 0x7FFFFFFF, so the instruction
// rounds as float_to_bfloat16 does.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
__device__ __forceinline__ float low_bf16(uint32_t word) {
  return __uint_as_float(word << 16);
}
__device__ __forceinline__ float high_bf16(uint32_t word) {
  return __uint_as_float(word & 0xFFFF0000U);
}

// Eight bfloat16 at row[column ...]; columns from `columns` on are left alone.
__device__ __forceinline__ void store_eight(Bf16* row, int column, int columns, const uint32_t (&v)[4]) {
  if (column + 8 <= columns) {
    *reinterpret_cast<uint4*>(row + column) = make_uint4(v[0], v[1], v[2], v[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (column + i < columns)
        row[column + i] = static_cast<Bf16>(i % 2 == 0 ? v[i / 2] & 0xFFFFU : v[i / 2] >> 16);
    }
  }
}
__device__ __forceinline__ void load_eight(const Bf16* row, int column, int columns, uint32_t (&v)[4]) {
  if (column + 8 <= columns) {
    const uint4 words = *reinterpret_cast<const uint4*>(row + column);
    v[0] = words.x;
    v[1] = words.y;
    v[2] = words.z;
    v[3] = words.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = column + 2 * i < columns ? row[column + 2 * i] : 0U;
      const uint32_t high = column + 2 * i + 1 < columns ? row[column + 2 * i + 1] : 0U;
      v[i] = low | (high << 16);
    }
  }
}

template <int kRegisters>
__device__ __forceinline__ void add_bias(float (&d)[kRegisters], const EpilogueArguments& e, int column0) {
#pragma unroll
  for (int i = 0; i < kRegisters / 4; ++i) {
    const int column = column0 + 8 * i;
    uint32_t pair = 0;
    if (column + 1 < e.n) {
      pair = *reinterpret_cast<const uint32_t*>(e.bias + column);
    } else if (column < e.n) {
      pair = e.bias[column];
    }
    const float b0 = low_bf16(pair);
    const float b1 = high_bf16(pair);
    d[4 * i] = d[4 * i] + b0;
    d[4 * i + 1] = d[4 * i + 1] + b1;
    d[4 * i + 2] = d[4 * i + 2] + b0;
    d[4 * i + 3] = d[4 * i + 3] + b1;
  }
}

__device__ __forceinline__ void rotate(float& a, float& b, float c, float s) {
  const float x = a;
  const float y = b;
  a = fmaf(x, c, -(y * s));
  b = fmaf(y, c, x * s);
}

// RoPE of a tile that begins at a head: what it needs of rows row and row + 8 is asked for before the
// products and used after them. Heads of kHeadSize columns.
template <int kHeadSize>
struct RopeTile {
  static constexpr int kHalf = kHeadSize / 2;
  static constexpr int kGroups = kHalf / 8;  // of eight columns, from a to b
  float2 cos[2][kGroups == 0 ? 1 : kGroups], sin[2][kGroups == 0 ? 1 : kGroups];

  __device__ __forceinline__ void load(const EpilogueArguments& e, int row, int tile_column, int lane) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row + 8 * h >= e.m || tile_column >= e.rope_columns) continue;
      const int64_t at = static_cast<int64_t>(e.positions[row + 8 * h]) * kHalf + 2 * (lane % 4);
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        cos[h][i] = load_pair(e.cos + at + 8 * i);
        sin[h][i] = load_pair(e.sin + at + 8 * i);
      }
    }
  }

  template <int kRegisters>
  __device__ __forceinline__ void apply(float (&d)[kRegisters], const EpilogueArguments& e,
                                        int column0) const {
#pragma unroll
    for (int i = 0; i < kRegisters / 4; ++i) {
      if ((i / kGroups) % 2 != 0 || column0 + 8 * i >= e.rope_columns) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 c = cos[h][i % kGroups];
        const float2 s = sin[h][i % kGroups];
        rotate(d[4 * i + 2 * h], d[4 * (i + kGroups) + 2 * h], c.x, s.x);
        rotate(d[4 * i + 2 * h + 1], d[4 * (i + kGroups) + 2 * h + 1], c.y, s.y);
      }
    }
  }

 private:
  // volatile: asked for here.
  static __device__ __forceinline__ float2 load_pair(const float* from) {
    float2 v;
    asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(from));
    return v;
  }
};

// Magnitudes of gates from kSmallestGate up to below kGateLimit: the quotient is within 12 units of its last
// place, and not subnormal. kMargin: of the product's.
inline constexpr uint32_t kSmallestGate = 0x0C00;  // 2^-103
inline constexpr uint32_t kGateLimit = 0x4180;     // 16
inline constexpr uint32_t kMargin = 16;

// bf16((g / (1 + exp(-g))) * u) of eight gates and ups, two a word, by the definition's operations.
__device__ __forceinline__ void swiglu_words_exact(const uint32_t (&gate)[4], const uint32_t (&up)[4],
                                                   uint32_t (&act)[4]) {
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    // Not indexed by i: the arrays must stay in registers.
    const uint32_t g = i == 0 ? gate[0] : i == 1 ? gate[1] : i == 2 ? gate[2] : gate[3];
    const uint32_t u = i == 0 ? up[0] : i == 1 ? up[1] : i == 2 ? up[2] : up[3];
    const float low = low_bf16(g) / (1.0F + numerics::exp(-low_bf16(g)));
    const float high = high_bf16(g) / (1.0F + numerics::exp(-high_bf16(g)));
    const uint32_t word = pack_bf16(low * low_bf16(u), high * high_bf16(u));
#pragma unroll
    for (int j = 0; j < 4; ++j) act[j] = i == j ? word : act[j];
  }
}

// The same with the machine's exp2 and reciprocal: a product that they may have brought to the wrong side of
// the middle between two bfloat16, and gates out of range, are left to the exact one. Compared with it on a
// GPU for all 2^32 pairs of a gate and an up.
__device__ __forceinline__ void swiglu_words(const uint32_t (&gate)[4], const uint32_t (&up)[4],
                                             uint32_t (&act)[4]) {
  // Of the magnitudes of the gates as integers, two a word.
  uint32_t most = gate[0] & 0x7FFF7FFFU;
  uint32_t least = most;
#pragma unroll
  for (int i = 1; i < 4; ++i) {
    const uint32_t magnitudes = gate[i] & 0x7FFF7FFFU;
    asm("max.u16x2 %0, %0, %1;" : "+r"(most) : "r"(magnitudes));
    asm("min.u16x2 %0, %0, %1;" : "+r"(least) : "r"(magnitudes));
  }
  uint32_t nearest = ~0U;  // to a middle: distance of the lower half of a product in the upper half
  float product[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float g = i % 2 == 0 ? low_bf16(gate[i / 2]) : high_bf16(gate[i / 2]);
    const float u = i % 2 == 0 ? low_bf16(up[i / 2]) : high_bf16(up[i / 2]);
    float e, y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(g * -0x1.715476p+0F));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0F + e));
    product[i] = (g * y) * u;
    nearest = min(nearest, numerics::float_bits(product[i]) * 0x10000U - ((0x8000U - kMargin) << 16));
  }
  if (nearest < (2 * kMargin) << 16 || (most & 0xFFFFU) >= kGateLimit || (most >> 16) >= kGateLimit ||
      (least & 0xFFFFU) < kSmallestGate || (least >> 16) < kSmallestGate) {
    swiglu_words_exact(gate, up, act);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) act[i] = pack_bf16(product[2 * i], product[2 * i + 1]);
}

}  // namespace lockstep::ops
