// SPDX-License-Identifier: Apache-2.0
// bf16((g / (1 + exp(-g))) * u) of eight gates and ups, two a word, for an epilogue that nothing runs beside:
// few operations for nearly all, and no more than a few times as many for the others.
#pragma once

#include "ops/matmul/matmul_epilogue.h"

namespace lockstep::ops {

// How near to a middle a product is left to the exact way, in units in the last place. With the machine's
// exp2 and reciprocal a quotient is at most 6 off (every gate in range was checked), the product so at
// most 13.
inline constexpr uint32_t kGateMargin = 14;
// Magnitudes of gates, as integers: 2^-20 and 8, and 64 for the second way.
inline constexpr uint32_t kLeastGate = 0x3580, kFastGates = 0x4100, kExactGates = 0x4280;

// 1 + numerics::exp(-g) with fewer operations; the same bits for |g| < 64.
__device__ __forceinline__ float gate_divisor(float g) {
  const float shifted = fmaf(-g, 0x1.715476p+0F, numerics::kRoundEvenMagic);
  const float n = shifted - numerics::kRoundEvenMagic;
  const float r = fmaf(n, -0x1.7f7d1cp-20F, fmaf(n, -0x1.62e400p-1F, -g));
  const float p = numerics::horner<numerics::kExpCoefficients>(r);
  return 1.0F + numerics::float_from_bits(numerics::float_bits(p) + (numerics::float_bits(shifted) << 23));
}

// g / n rounded once without a branch: n = gate_divisor(g), 2^-20 < |g| < 64. That was checked for all of
// them and any reciprocal within 2^-21 of the exact one; 2^-23 is an exception (n has a significand of all
// ones).
__device__ __forceinline__ float gate_quotient(float g, float n) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(n));
  y = fmaf(y, fmaf(-n, y, 1.0F), y);
  float q = g * y;
  q = fmaf(y, fmaf(-n, q, g), q);
  return fmaf(y, fmaf(-n, q, g), q);
}

__device__ __forceinline__ float gate_of(const uint32_t (&words)[4], int i) {
  return i % 2 == 0 ? low_bf16(words[i / 2]) : high_bf16(words[i / 2]);
}

// `most`: the largest magnitude of a gate; `least`: the least.
__device__ __forceinline__ void swiglu_exact(const uint32_t (&gate)[4], const uint32_t (&up)[4],
                                             uint32_t (&act)[4], uint32_t least, uint32_t most) {
  if (least > kLeastGate && most < kExactGates) {
    float product[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float g = gate_of(gate, i);
      product[i] = gate_quotient(g, gate_divisor(g)) * gate_of(up, i);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) act[i] = pack_bf16(product[2 * i], product[2 * i + 1]);
    return;
  }
  swiglu_words_exact(gate, up, act);
}

// A product that the machine's functions may have brought to the wrong side of the middle between two
// bfloat16 is left to the exact way.
__device__ __forceinline__ void swiglu_eight(const uint32_t (&gate)[4], const uint32_t (&up)[4],
                                             uint32_t (&act)[4]) {
  uint32_t most = gate[0] & 0x7FFF7FFFU;  // two magnitudes a word
  uint32_t least = most;
#pragma unroll
  for (int i = 1; i < 4; ++i) {
    const uint32_t magnitudes = gate[i] & 0x7FFF7FFFU;
    asm("max.u16x2 %0, %0, %1;" : "+r"(most) : "r"(magnitudes));
    asm("min.u16x2 %0, %0, %1;" : "+r"(least) : "r"(magnitudes));
  }
  most = max(most & 0xFFFFU, most >> 16);
  least = min(least & 0xFFFFU, least >> 16);
  uint32_t nearest = ~0U;  // to a middle: how far the lower half of a product is into the margin around it
  float product[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float g = gate_of(gate, i);
    float e, y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(g * -0x1.715476p+0F));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0F + e));
    product[i] = (g * y) * gate_of(up, i);
    nearest = min(nearest, numerics::float_bits(product[i]) * 0x10000U - ((0x8000U - kGateMargin) << 16));
  }
  if (nearest < (2 * kGateMargin) << 16 || most >= kFastGates || least <= kLeastGate) {
    swiglu_exact(gate, up, act, least, most);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) act[i] = pack_bf16(product[2 * i], product[2 * i + 1]);
}

}  // namespace lockstep::ops
