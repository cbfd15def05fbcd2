// SPDX-License-Identifier: Apache-2.0
// From the accumulators of a 64 x N tile (matmul_wgmma.h) to memory: bias, RoPE, residual, SwiGLU, rounding.
// Each thread holds both elements of every pair that RoPE or SwiGLU needs.
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

// Word j of lane i of each four lanes becomes word i of lane j.
__device__ __forceinline__ void transpose_quad(uint32_t (&v)[4], int lane) {
  const bool odd = (lane & 1) != 0;
  const bool high = (lane & 2) != 0;
  const uint32_t a = __shfl_xor_sync(~0U, odd ? v[0] : v[1], 1);
  const uint32_t b = __shfl_xor_sync(~0U, odd ? v[2] : v[3], 1);
  v[0] = odd ? a : v[0];
  v[1] = odd ? v[1] : a;
  v[2] = odd ? b : v[2];
  v[3] = odd ? v[3] : b;
  const uint32_t c = __shfl_xor_sync(~0U, high ? v[0] : v[2], 2);
  const uint32_t d = __shfl_xor_sync(~0U, high ? v[1] : v[3], 2);
  v[0] = high ? c : v[0];
  v[1] = high ? d : v[1];
  v[2] = high ? v[2] : c;
  v[3] = high ? v[3] : d;
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

// Heads of kHeadSize columns; the tile begins at one.
template <int kHeadSize, int kRegisters>
__device__ __forceinline__ void rope_tile(float (&d)[kRegisters], const EpilogueArguments& e, int row,
                                          int column0) {
  constexpr int kHalf = kHeadSize / 2;
  constexpr int kGroups = kHalf / 8;  // of eight columns, from a to b
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row + 8 * h >= e.m) continue;
    const int64_t at = static_cast<int64_t>(e.positions[row + 8 * h]) * kHalf;
#pragma unroll
    for (int i = 0; i < kRegisters / 4; ++i) {
      if ((i / kGroups) % 2 != 0 || column0 + 8 * i >= e.rope_columns) continue;
      const int pair = (column0 + 8 * i) % kHeadSize;
      const float2 c = *reinterpret_cast<const float2*>(e.cos + at + pair);
      const float2 s = *reinterpret_cast<const float2*>(e.sin + at + pair);
      rotate(d[4 * i + 2 * h], d[4 * (i + kGroups) + 2 * h], c.x, s.x);
      rotate(d[4 * i + 2 * h + 1], d[4 * (i + kGroups) + 2 * h + 1], c.y, s.y);
    }
  }
}

// d = residual + d. All loads first: a store to `out`, which may be the residual, would hold later ones back.
template <int kRegisters>
__device__ __forceinline__ void add_residual(float (&d)[kRegisters], const EpilogueArguments& e, int row,
                                             int tile_column, int lane) {
  uint32_t before[kRegisters / 8][4];
#pragma unroll
  for (int g = 0; g < kRegisters / 8; ++g) {
    const int r = row + 8 * (g % 2);
    const int column = tile_column + 8 * (g / 2 * 4 + lane % 4);
    if (r < e.m) {
      load_eight(e.residual + static_cast<int64_t>(r) * e.ld_residual, column, e.n, before[g]);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) before[g][j] = 0;
    }
  }
#pragma unroll
  for (int g = 0; g < kRegisters / 8; ++g) {
    transpose_quad(before[g], lane);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = 4 * (g / 2 * 4 + j) + 2 * (g % 2);
      d[at] = low_bf16(before[g][j]) + d[at];
      d[at + 1] = high_bf16(before[g][j]) + d[at + 1];
    }
  }
}

// Rows row and row + 8: rounds and stores.
template <int kRegisters>
__device__ __forceinline__ void store_bf16_tile(const float (&d)[kRegisters], const EpilogueArguments& e,
                                                int row, int tile_column, int lane) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = row + 8 * h;
    const bool in = r < e.m;
    Bf16* out = static_cast<Bf16*>(e.out) + static_cast<int64_t>(r) * e.ld_out;
#pragma unroll
    for (int i = 0; i < kRegisters / 4; i += 4) {
      const int column = tile_column + 8 * (i + lane % 4);
      uint32_t v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] = pack_bf16(d[4 * (i + j) + 2 * h], d[4 * (i + j) + 2 * h + 1]);
      transpose_quad(v, lane);
      if (in) store_eight(out, column, e.n, v);
    }
  }
}

template <int kRegisters>
__device__ __forceinline__ void store_float_tile(const float (&d)[kRegisters], const EpilogueArguments& e,
                                                 int row, int column0) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row + 8 * h >= e.m) continue;
    float* out = static_cast<float*>(e.out) + static_cast<int64_t>(row + 8 * h) * e.ld_out;
#pragma unroll
    for (int i = 0; i < kRegisters / 4; ++i) {
      const int column = column0 + 8 * i;
      if (column + 1 < e.n) {
        *reinterpret_cast<float2*>(out + column) = make_float2(d[4 * i + 2 * h], d[4 * i + 2 * h + 1]);
      } else if (column < e.n) {
        out[column] = d[4 * i + 2 * h];
      }
    }
  }
}

// 1 + numerics::exp(-g) with fewer operations; the same bits for every g but NaN. Below e^-80 the sum is 1; a
// result in range is p * 2^k, exact; from 2^128 on it is infinity.
__device__ __forceinline__ float one_plus_exp(float g) {
  const float y = fminf(fmaxf(-g, -80.0F), 89.0F);
  const float shifted = fmaf(y, 0x1.715476p+0F, numerics::kRoundEvenMagic);
  const float n = shifted - numerics::kRoundEvenMagic;
  const float r = fmaf(n, -0x1.7f7d1cp-20F, fmaf(n, -0x1.62e400p-1F, y));
  const float p = numerics::horner<numerics::kExpCoefficients>(r);
  const uint32_t bits = numerics::float_bits(p) + (numerics::float_bits(shifted) << 23);
  return 1.0F + numerics::float_from_bits(min(bits, 0x7F800000U));
}

// g / n rounded once without a branch: n = one_plus_exp(g), g a bfloat16, +0 or 2^-20 < |g| < 64. That was
// checked for all of them and any reciprocal within 2^-21 of the exact one; 2^-23 is an exception (n has a
// significand of all ones).
__device__ __forceinline__ float divide_in_range(float g, float n) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(n));
  y = fmaf(y, fmaf(-n, y, 1.0F), y);
  float q = g * y;
  q = fmaf(y, fmaf(-n, q, g), q);
  return fmaf(y, fmaf(-n, q, g), q);
}

// bf16((g / (1 + exp(-g))) * u) of eight gates and ups, two a word. Quotients out of the fast range are rare.
__device__ __forceinline__ void swiglu_words(const uint32_t (&gate)[4], const uint32_t (&up)[4],
                                             uint32_t (&act)[4]) {
  float quotient[8];
  bool fast = true;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float g = i % 2 == 0 ? low_bf16(gate[i / 2]) : high_bf16(gate[i / 2]);
    const float n = one_plus_exp(g);
    fast = fast && fabsf(g) < 64.0F && (fabsf(g) > 0x1p-20F || numerics::float_bits(g) == 0);
    quotient[i] = divide_in_range(g, n);
  }
  if (!fast) {
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      // Not indexed by i: the arrays must stay in registers.
      const uint32_t word = i == 0 ? gate[0] : i == 1 ? gate[1] : i == 2 ? gate[2] : gate[3];
      const float low = low_bf16(word) / (1.0F + numerics::exp(-low_bf16(word)));
      const float high = high_bf16(word) / (1.0F + numerics::exp(-high_bf16(word)));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        quotient[2 * j] = i == j ? low : quotient[2 * j];
        quotient[2 * j + 1] = i == j ? high : quotient[2 * j + 1];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    act[i] = pack_bf16(quotient[2 * i] * low_bf16(up[i]), quotient[2 * i + 1] * high_bf16(up[i]));
}

// The first half of the registers is gate, the second up, of the columns from tile_column of f = e.n.
template <int kRegisters>
__device__ __forceinline__ void store_swiglu_tile(const float (&d)[kRegisters], const EpilogueArguments& e,
                                                  int row, int tile_column, int lane) {
  constexpr int kUp = kRegisters / 2;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = row + 8 * h;
    const bool in = r < e.m;
#pragma unroll
    for (int i = 0; i < kUp / 4; i += 4) {
      const int column = tile_column + 8 * (i + lane % 4);
      uint32_t gate[4], up[4], act[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = 4 * (i + j) + 2 * h;
        gate[j] = pack_bf16(d[at], d[at + 1]);
        up[j] = pack_bf16(d[kUp + at], d[kUp + at + 1]);
      }
      swiglu_words(gate, up, act);
      transpose_quad(act, lane);
      if (in) store_eight(e.act + static_cast<int64_t>(r) * e.ld_act, column, e.n, act);
      if (e.out != nullptr) {
        Bf16* out = static_cast<Bf16*>(e.out) + static_cast<int64_t>(r) * e.ld_out;
        transpose_quad(gate, lane);
        transpose_quad(up, lane);
        if (in) {
          store_eight(out, column, e.n, gate);
          store_eight(out + e.n, column, e.n, up);
        }
      }
    }
  }
}

// kHeadSize: of kRope. row: of d[0]; tile_column: first column of the tile.
template <MatmulOutput kOutput, int kHeadSize, int kRegisters>
__device__ __forceinline__ void store_tile(float (&d)[kRegisters], const EpilogueArguments& e, int row,
                                           int tile_column, int lane) {
  const int column0 = tile_column + 2 * (lane % 4);
  if constexpr (kOutput == MatmulOutput::kSwiglu) {
    store_swiglu_tile(d, e, row, tile_column, lane);
  } else {
    if (e.bias != nullptr) add_bias(d, e, column0);
    if constexpr (kOutput == MatmulOutput::kFloat) store_float_tile(d, e, row, column0);
    if constexpr (kOutput == MatmulOutput::kRope) rope_tile<kHeadSize>(d, e, row, column0);
    if constexpr (kOutput == MatmulOutput::kResidual) add_residual(d, e, row, tile_column, lane);
    if constexpr (kOutput != MatmulOutput::kFloat) store_bf16_tile(d, e, row, tile_column, lane);
  }
}

}  // namespace lockstep::ops
