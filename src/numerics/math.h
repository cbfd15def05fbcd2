// SPDX-License-Identifier: Apache-2.0
// exp, log, sin, cos and their kin, each one written expression of + - * / fma sqrt and integer operations,
// the same bits from every compiler on host and device (docs/numerics.md, Functions). No libm.
// binary32 functions here; binary64 ones in math_double.h, which this header includes.
//
// NaN results are always float_from_bits(kNanBits) / double_from_bits(kNan64Bits).
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/host_device.h"
#include "numerics/math_double.h"
#include "numerics/polynomial.h"

namespace lockstep::numerics {

inline constexpr uint32_t kNanBits = 0x7FC00000U;
inline constexpr float kRoundEvenMagic = 12582912.0F;  // 1.5 * 2^23

// 2^f on [-1/2, 1/2], highest degree first. Horner: p = c[0]; then p = fma(p, f, c[i]) for i = 1 .. 6.
inline constexpr float kExp2Coefficients[] = {0x1.41788ap-13F, 0x1.5f094ap-10F, 0x1.3b2dd4p-7F,
                                              0x1.c6af7ap-5F,  0x1.ebfbdcp-3F,  0x1.62e430p-1F,
                                              0x1.000000p+0F};
inline constexpr int kExp2Degree = 6;

// e^r on |r| <= ln(2)/2, highest degree first, Horner as above.
inline constexpr float kExpCoefficients[] = {0x1.6a4f6cp-10F, 0x1.123980p-7F, 0x1.5558aep-5F, 0x1.555492p-3F,
                                             0x1.fffffcp-2F,  0x1.000000p+0F, 0x1.000000p+0F};

// 2^f for |f| <= 1/2; exp2_fraction(0) is 1.
LOCKSTEP_HD float exp2_fraction(float f) {
  return horner<kExp2Coefficients>(f);
}

// The nearest integer, ties to even. |s| < 2^22; a result of zero is +0.
LOCKSTEP_HD float round_even(float s) {
  return (s + kRoundEvenMagic) - kRoundEvenMagic;
}

// 2^e exactly. -126 <= e <= 127.
LOCKSTEP_HD float pow2f(int e) {
  return float_from_bits(static_cast<uint32_t>(e + 127) << 23);
}

// x * 2^e in one multiplication; +0 where e < -126. e <= 127.
LOCKSTEP_HD float scale_by_pow2(float x, int e) {
  return e < -126 ? 0.0F : x * pow2f(e);
}

// e^x. Overflows to +inf, underflows through the subnormals to +0. No branch: loops over it vectorise.
LOCKSTEP_HD float exp(float x) {
  constexpr float kLog2E = 0x1.715476p+0F;
  constexpr float kLn2High = 0x1.62e400p-1F;  // 14 bits: n * kLn2High is exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20F;
  constexpr float kLowest = -104.0F;  // e^-104 < 2^-150 rounds to +0
  constexpr float kHighest = 89.0F;   // e^89 > 2^128
  float y = x < kLowest ? kLowest : x;
  y = y > kHighest ? kHighest : y;
  const float shifted = std::fma(y, kLog2E, kRoundEvenMagic);
  const float n = shifted - kRoundEvenMagic;
  float r = std::fma(n, -kLn2High, y);
  r = std::fma(n, -kLn2Low, r);
  const float p = horner<kExpCoefficients>(r);
  // n from the bits of `shifted`: defined for NaN too. -150 <= n <= 128: in two factors, so that one rounding
  // makes a subnormal or infinity.
  const auto k = static_cast<int32_t>(float_bits(shifted) - float_bits(kRoundEvenMagic));
  const int32_t half = k >> 1;
  const float low = float_from_bits(static_cast<uint32_t>(half + 127) << 23);
  const float high = float_from_bits(static_cast<uint32_t>(k - half + 127) << 23);
  const uint32_t bits = float_bits((p * low) * high);
  // A mask, not a choice: GCC would move the arithmetic behind the comparison and then not vectorise.
  const uint32_t nan_mask = 0U - static_cast<uint32_t>(x != x);
  return float_from_bits((bits & ~nan_mask) | (kNanBits & nan_mask));
}

// binary32(log of binary64): one rounding of a result good to 2^-52.
LOCKSTEP_HD float log(float x) {
  const double y = numerics::log(static_cast<double>(x));
  return y != y ? float_from_bits(kNanBits) : static_cast<float>(y);
}

// 1/(1 + e^-x): three operations.
LOCKSTEP_HD float sigmoid(float x) {
  // The sum of a NaN keeps its payload on a CPU and not on a GPU: one NaN for all.
  return x != x ? float_from_bits(kNanBits) : 1.0F / (1.0F + numerics::exp(-x));
}

// 1/sqrt(x): two operations. x < 0 and NaN: NaN; 0: infinity of its sign.
LOCKSTEP_HD float rsqrt(float x) {
  const float y = 1.0F / std::sqrt(x);
  return y != y ? float_from_bits(kNanBits) : y;
}

}  // namespace lockstep::numerics
