// SPDX-License-Identifier: Apache-2.0
// Elementary functions from + - * / fma sqrt and integer operations, one text for host and device compilers.
// Error bounds and every coefficient: docs/numerics.md. libm is not called.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "numerics/host_device.h"

namespace lockstep::numerics {

template <typename To, typename From>
LOCKSTEP_HD To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
#if defined(__CUDACC__)
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
#else
  return std::bit_cast<To>(from);
#endif
}
LOCKSTEP_HD float fused(float a, float b, float c) {
  return ::fmaf(a, b, c);
}
LOCKSTEP_HD double fused(double a, double b, double c) {
  return ::fma(a, b, c);
}

// The integer nearest to s, ties to even, for |s| < 2^22: two additions, so that it vectorises.
LOCKSTEP_HD float round_even(float s) {
  constexpr float kMagic = 0x1.8p23F;
  return (s + kMagic) - kMagic;
}
LOCKSTEP_HD double round_even(double s) {  // |s| < 2^51
  constexpr double kMagic = 0x1.8p52;
  return (s + kMagic) - kMagic;
}

// 2^e exactly, -126 <= e <= 127 (binary32) or -1022 <= e <= 1023 (binary64).
LOCKSTEP_HD float pow2f(int e) {
  return bit_cast<float>(static_cast<uint32_t>(e + 127) << 23);
}
LOCKSTEP_HD double pow2d(int e) {
  return bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52);
}

// x * 2^e in one multiplication; e < -126: +0. e <= 127.
LOCKSTEP_HD float scale_by_pow2(float x, int e) {
  return e < -126 ? 0.0F : x * pow2f(e);
}

// 2^f for f in [-0.5, 0.5]: Horner from the first (highest) coefficient by fma; exact at 0.
inline constexpr int kExp2Degree = 6;
inline constexpr float kExp2Coefficients[kExp2Degree + 1] = {
    0x1.44138ap-13F, 0x1.5f0890p-10F, 0x1.3b2a54p-7F, 0x1.c6af6cp-5F, 0x1.ebfbe0p-3F, 0x1.62e430p-1F, 0x1p0F};
LOCKSTEP_HD float exp2_fraction(float f) {
  float p = 0x1.44138ap-13F;
  p = fused(p, f, 0x1.5f0890p-10F);
  p = fused(p, f, 0x1.3b2a54p-7F);
  p = fused(p, f, 0x1.c6af6cp-5F);
  p = fused(p, f, 0x1.ebfbe0p-3F);
  p = fused(p, f, 0x1.62e430p-1F);
  return fused(p, f, 1.0F);
}

// e^x, binary32. Overflow: +inf; gradual underflow; NaN: NaN (the quiet 0x7FFFFFFF). No branch, so loops
// vectorise.
LOCKSTEP_HD float exp(float x) {
  constexpr float kHigh = 89.0F;                                    // e^89 overflows
  constexpr float kLow = -104.0F;                                   // e^-104 rounds to 0
  const float bounded = x > kHigh ? kHigh : (x > kLow ? x : kLow);  // NaN becomes kLow; put back at the end
  const float n = round_even(bounded * 0x1.715476p0F);
  float r = fused(-n, 0x1.62e4p-1F, bounded);
  r = fused(-n, 0x1.7f7d1cp-20F, r);
  float p = 0x1.6d4316p-10F;
  p = fused(p, r, 0x1.123d82p-7F);
  p = fused(p, r, 0x1.5554eap-5F);
  p = fused(p, r, 0x1.55547cp-3F);
  p = fused(p, r, 0.5F);
  p = fused(p, r, 1.0F);
  p = fused(p, r, 1.0F);
  const int e = static_cast<int>(n);  // -150 .. 128: in two steps, the second rounds once
  const int half = e >> 1;
  const float y = (p * pow2f(half)) * pow2f(e - half);
  return x != x ? bit_cast<float>(0x7FFFFFFFU) : y;
}

// 1/(1 + e^-x), binary32.
LOCKSTEP_HD float sigmoid(float x) {
  return 1.0F / (1.0F + exp(-x));
}

// 1/sqrt(x), binary32: two correctly rounded operations.
LOCKSTEP_HD float rsqrt(float x) {
  return 1.0F / ::sqrtf(x);
}

namespace internal {

// e^r for |r| <= ln 2 / 2 (plus rounding): Taylor to r^13.
LOCKSTEP_HD double exp_taylor(double r) {
  double p = 0x1.6124613a86d09p-33;
  p = fused(p, r, 0x1.1eed8eff8d898p-29);
  p = fused(p, r, 0x1.ae64567f544e4p-26);
  p = fused(p, r, 0x1.27e4fb7789f5cp-22);
  p = fused(p, r, 0x1.71de3a556c734p-19);
  p = fused(p, r, 0x1.a01a01a01a01ap-16);
  p = fused(p, r, 0x1.a01a01a01a01ap-13);
  p = fused(p, r, 0x1.6c16c16c16c17p-10);
  p = fused(p, r, 0x1.1111111111111p-7);
  p = fused(p, r, 0x1.5555555555555p-5);
  p = fused(p, r, 0x1.5555555555555p-3);
  p = fused(p, r, 0.5);
  p = fused(p, r, 1.0);
  return fused(p, r, 1.0);
}

// p * 2^e in two multiplications, the second rounds once. -1100 <= e <= 1024.
LOCKSTEP_HD double scale_twice(double p, int e) {
  const int half = e >> 1;
  return (p * pow2d(half)) * pow2d(e - half);
}

}  // namespace internal

// e^x, binary64.
LOCKSTEP_HD double exp(double x) {
  if (x != x) return bit_cast<double>(uint64_t{0x7FFFFFFFFFFFFFFF});
  if (x > 710.0) return bit_cast<double>(uint64_t{0x7FF0000000000000});
  if (x < -746.0) return 0.0;
  const double n = round_even(x * 0x1.71547652b82fep0);
  double r = fused(-n, 0x1.62e42fefa3800p-1, x);
  r = fused(-n, 0x1.ef35793c76730p-45, r);
  return internal::scale_twice(internal::exp_taylor(r), static_cast<int>(n));
}

// 2^x, binary64.
LOCKSTEP_HD double exp2(double x) {
  if (x != x) return bit_cast<double>(uint64_t{0x7FFFFFFFFFFFFFFF});
  if (x > 1025.0) return bit_cast<double>(uint64_t{0x7FF0000000000000});
  if (x < -1076.0) return 0.0;
  const double n = round_even(x);
  const double f = x - n;
  const double r = fused(f, 0x1.62e42fefa39efp-1, f * 0x1.abc9e3b39803fp-56);
  return internal::scale_twice(internal::exp_taylor(r), static_cast<int>(n));
}

namespace internal {

struct LogParts {
  double exponent;  // x = 2^exponent * m, m in [sqrt(1/2), sqrt(2))
  double log_m;     // ln m
};
// x positive, finite.
LOCKSTEP_HD LogParts log_parts(double x) {
  uint64_t bits = bit_cast<uint64_t>(x);
  int e = 0;
  if (bits < (uint64_t{1} << 52)) {  // subnormal
    bits = bit_cast<uint64_t>(x * 0x1p54);
    e = -54;
  }
  e += static_cast<int>(bits >> 52) - 1023;
  double m = bit_cast<double>((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000);
  if (m > 0x1.6a09e667f3bcdp0) {
    m = m * 0.5;
    e += 1;
  }
  // ln m = 2 atanh(s), s = (m-1)/(m+1), |s| <= 0.1716: s + s*z*(1/3 + z/5 + ...), z = s^2.
  const double d = m - 1.0;
  const double s = d / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 23.0;
  p = fused(p, z, 1.0 / 21.0);
  p = fused(p, z, 1.0 / 19.0);
  p = fused(p, z, 1.0 / 17.0);
  p = fused(p, z, 1.0 / 15.0);
  p = fused(p, z, 1.0 / 13.0);
  p = fused(p, z, 1.0 / 11.0);
  p = fused(p, z, 1.0 / 9.0);
  p = fused(p, z, 1.0 / 7.0);
  p = fused(p, z, 1.0 / 5.0);
  p = fused(p, z, 1.0 / 3.0);
  // 2s = d - s*d exactly in real numbers, so d carries the leading bits: ln m = d - s*(d - 2*z*p).
  return {static_cast<double>(e), d - s * (d - 2.0 * (z * p))};
}
LOCKSTEP_HD bool log_special(double x, double* out) {
  if (x > 0 && x < bit_cast<double>(uint64_t{0x7FF0000000000000})) return false;
  if (x == 0) {
    *out = bit_cast<double>(uint64_t{0xFFF0000000000000});
  } else if (x > 0) {
    *out = x;
  } else {
    *out = bit_cast<double>(uint64_t{0x7FFFFFFFFFFFFFFF});
  }
  return true;
}

}  // namespace internal

// ln x, binary64. 0: -inf; negative or NaN: NaN.
LOCKSTEP_HD double log(double x) {
  double special = 0;
  if (internal::log_special(x, &special)) return special;
  const internal::LogParts parts = internal::log_parts(x);
  return fused(parts.exponent, 0x1.62e42fefa3800p-1,
               fused(parts.exponent, 0x1.ef35793c76730p-45, parts.log_m));
}

// log2 x, binary64.
LOCKSTEP_HD double log2(double x) {
  double special = 0;
  if (internal::log_special(x, &special)) return special;
  const internal::LogParts parts = internal::log_parts(x);
  return parts.exponent + fused(parts.log_m, 0x1.71547652b82fep0, parts.log_m * 0x1.777d0ffda0d24p-56);
}

// ln x, binary32: the binary64 result, rounded.
LOCKSTEP_HD float log(float x) {
  return static_cast<float>(log(static_cast<double>(x)));
}

namespace internal {

// x = k*pi/2 + r, |r| <= pi/4 and a little; |x| < 2^24. Three parts of pi/2: 33, 33 and 53 bits.
LOCKSTEP_HD double reduce_quarter(double x, int64_t* k) {
  const double n = round_even(x * 0x1.45f306dc9c883p-1);
  *k = static_cast<int64_t>(n);
  double r = fused(-n, 0x1.921fb544p0, x);
  r = fused(-n, 0x1.0b4611a6p-34, r);
  return fused(-n, 0x1.3198a2e037073p-69, r);
}
LOCKSTEP_HD double sin_taylor(double r) {
  const double z = r * r;
  double p = -1.0 / 1307674368000.0;
  p = fused(p, z, 1.0 / 6227020800.0);
  p = fused(p, z, -1.0 / 39916800.0);
  p = fused(p, z, 1.0 / 362880.0);
  p = fused(p, z, -1.0 / 5040.0);
  p = fused(p, z, 1.0 / 120.0);
  p = fused(p, z, -1.0 / 6.0);
  return fused(p * z, r, r);
}
LOCKSTEP_HD double cos_taylor(double r) {
  const double z = r * r;
  double p = 1.0 / 20922789888000.0;
  p = fused(p, z, -1.0 / 87178291200.0);
  p = fused(p, z, 1.0 / 479001600.0);
  p = fused(p, z, -1.0 / 3628800.0);
  p = fused(p, z, 1.0 / 40320.0);
  p = fused(p, z, -1.0 / 720.0);
  p = fused(p, z, 1.0 / 24.0);
  p = fused(p, z, -0.5);
  return fused(p, z, 1.0);
}
LOCKSTEP_HD double sin_of_quarter(int64_t k, double r) {
  const double value = (k & 1) != 0 ? cos_taylor(r) : sin_taylor(r);
  return (k & 2) != 0 ? -value : value;
}

}  // namespace internal

// sin x and cos x, binary64, |x| < 2^24.
LOCKSTEP_HD double sin(double x) {
  int64_t k = 0;
  const double r = internal::reduce_quarter(x, &k);
  return internal::sin_of_quarter(k, r);
}
LOCKSTEP_HD double cos(double x) {
  int64_t k = 0;
  const double r = internal::reduce_quarter(x, &k);
  return internal::sin_of_quarter(k + 1, r);
}

}  // namespace lockstep::numerics
