// SPDX-License-Identifier: Apache-2.0
// binary64 exp, exp2, log, log2, sin, cos. Bounds in docs/numerics.md, tested in math_double_test.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/host_device.h"
#include "numerics/polynomial.h"

namespace lockstep::numerics {

inline constexpr uint64_t kNan64Bits = 0x7FF8000000000000ULL;
inline constexpr double kRoundEvenMagic64 = 6755399441055744.0;  // 1.5 * 2^52
inline constexpr uint64_t kInfinity64Bits = 0x7FF0000000000000ULL;
// sin and cos are defined for |x| <= kMaxAngle; beyond it NaN.
inline constexpr double kMaxAngle = 0x1p30;

// All polynomials: highest degree first, Horner, p = fma(p, x, c[i]).
// e^r = 1 + r + r^2 q(r): q.
inline constexpr double kExp64Coefficients[] = {
    0x1.ad109e2e4c75fp-26, 0x1.289f8a6ba7fd8p-22, 0x1.71df60c5ccf04p-19, 0x1.a019ab2fa4f6cp-16,
    0x1.a01a01161905dp-13, 0x1.6c16c17cc1369p-10, 0x1.1111111129ccdp-7,  0x1.5555555553212p-5,
    0x1.55555555554fcp-3,  0x1.0000000000000p-1};
// 2^f.
inline constexpr double kExp2_64Coefficients[] = {
    0x1.df5c5effda881p-36, 0x1.ec5ebd8ed911fp-32, 0x1.e4bc944b18925p-28, 0x1.b5233ee73cd3ep-24,
    0x1.62c026ec88a86p-20, 0x1.ffcbfd4306734p-17, 0x1.430912f762895p-13, 0x1.5d87fe7875924p-10,
    0x1.3b2ab6fba5183p-7,  0x1.c6b08d704a1cep-5,  0x1.ebfbdff82c58ep-3,  0x1.62e42fefa39efp-1,
    0x1.0000000000000p+0};
// (log((1+s)/(1-s)) - 2s) / s^3 in z = s^2.
inline constexpr double kLogCoefficients[] = {
    0x1.2b61b8d9612cdp-3, 0x1.39fda0a7bb154p-3, 0x1.7462ba2d9af7dp-3, 0x1.c71c62d3f3598p-3,
    0x1.2492492dfc691p-2, 0x1.99999999952afp-2, 0x1.5555555555558p-1};
// (sin(r) - r) / r^3 in z = r^2.
inline constexpr double kSinCoefficients[] = {0x1.5e11950787a8ap-33, -0x1.ae60215d80e76p-26,
                                              0x1.71de37b280748p-19, -0x1.a01a019ea2218p-13,
                                              0x1.1111111110c89p-7,  -0x1.5555555555555p-3};
// (cos(r) - 1 + r^2/2) / r^4 in z = r^2.
inline constexpr double kCosCoefficients[] = {-0x1.903467e856842p-37, 0x1.1eeafe44c2d69p-29,
                                              -0x1.27e4f9ac2b40cp-22, 0x1.a01a019ef6d59p-16,
                                              -0x1.6c16c16c167d8p-10, 0x1.5555555555555p-5};

// p * 2^k in two factors; -1076 <= k <= 1024.
LOCKSTEP_HD double scale_twice(double p, int64_t k) {
  const int64_t half = k >> 1;
  const double low = double_from_bits(static_cast<uint64_t>(half + 1023) << 52);
  const double high = double_from_bits(static_cast<uint64_t>(k - half + 1023) << 52);
  return (p * low) * high;
}

LOCKSTEP_HD double exp(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefp-1;  // 32 bits: n * kLn2High is exact
  constexpr double kLn2Low = 0x1.473de6af278edp-34;
  constexpr double kLowest = -746.0;
  constexpr double kHighest = 710.0;
  double y = x < kLowest ? kLowest : x;
  y = y > kHighest ? kHighest : y;
  const double shifted = std::fma(y, kLog2E, kRoundEvenMagic64);
  const double n = shifted - kRoundEvenMagic64;
  const double high = std::fma(n, -kLn2High, y);
  const double r = std::fma(n, -kLn2Low, high);
  const double rest = std::fma(n, -kLn2Low, high - r);  // r + rest: the reduced argument
  const double q = horner<kExp64Coefficients>(r);
  const double p = 1.0 + (r + std::fma(r * r, q, rest));
  const auto k = static_cast<int64_t>(double_bits(shifted) - double_bits(kRoundEvenMagic64));
  const double result = scale_twice(p, k);
  return x != x ? double_from_bits(kNan64Bits) : result;
}

LOCKSTEP_HD double exp2(double x) {
  double y = x < -1076.0 ? -1076.0 : x;
  y = y > 1024.0 ? 1024.0 : y;
  const double shifted = y + kRoundEvenMagic64;
  const double f = y - (shifted - kRoundEvenMagic64);  // exact
  const double p = horner<kExp2_64Coefficients>(f);
  const auto k = static_cast<int64_t>(double_bits(shifted) - double_bits(kRoundEvenMagic64));
  const double result = scale_twice(p, k);
  return x != x ? double_from_bits(kNan64Bits) : result;
}

// x = 2^k * m with m in [sqrt(1/2), sqrt(2)) about; log(m) = high + low.
struct LogParts {
  double k, high, low;
};
// x finite and > 0.
LOCKSTEP_HD LogParts log_parts(double x) {
  constexpr uint64_t kSqrtHalfBits = 0x3FE6A09E667F3BCDULL;
  const bool tiny = x < 0x1p-1022;
  const uint64_t bits = double_bits(tiny ? x * 0x1p54 : x);
  const auto k = static_cast<int64_t>(bits - kSqrtHalfBits) >> 52;
  const double f = double_from_bits(bits - (static_cast<uint64_t>(k) << 52)) - 1.0;  // exact
  const double s = f / (2.0 + f);
  const double half_square = 0.5 * f * f;
  const double square_error = std::fma(0.5 * f, f, -half_square);
  const double z = s * s;
  const double tail = s * std::fma(z, horner<kLogCoefficients>(z), half_square);
  // log(1+f) = f - f^2/2 + tail
  const double high = f - half_square;
  const double low = (((f - high) - half_square) - square_error) + tail;
  return {static_cast<double>(tiny ? k - 54 : k), high, low};
}

// log of what log_parts does not take: NaN and negative: NaN; +-0: -inf; +inf: +inf.
LOCKSTEP_HD bool log_special(double x) {
  return !(x > 0.0) || double_bits(x) == kInfinity64Bits;
}
LOCKSTEP_HD double log_of_special(double x) {
  if (x == 0.0) return double_from_bits(kInfinity64Bits | 0x8000000000000000ULL);
  return x > 0.0 ? x : double_from_bits(kNan64Bits);
}

LOCKSTEP_HD double log(double x) {
  constexpr double kLn2High = 0x1.62e42fefp-1;
  constexpr double kLn2Low = 0x1.473de6af278edp-34;
  if (log_special(x)) return log_of_special(x);
  const LogParts p = log_parts(x);
  const double a = p.k * kLn2High;  // exact
  const double sum = a + p.high;
  const double error = (a - sum) + p.high;
  return sum + (error + std::fma(p.k, kLn2Low, p.low));
}

// Exact for powers of two.
LOCKSTEP_HD double log2(double x) {
  constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
  constexpr double kInverseLn2Low = 0x1.777d0ffda0d24p-56;
  if (log_special(x)) return log_of_special(x);
  const LogParts p = log_parts(x);
  const double a = p.high * kInverseLn2;
  double low = std::fma(p.high, kInverseLn2, -a);
  low = std::fma(p.high, kInverseLn2Low, low);
  low = std::fma(p.low, kInverseLn2, low);
  const double sum = p.k + a;
  const double error = (p.k - sum) + a;
  return sum + (error + low);
}

// x = quadrant * pi/2 + r + rest, |r| <= about pi/4.
struct ReducedAngle {
  double r, rest;
  uint32_t quadrant;  // 0 .. 3
};
// |x| <= kMaxAngle. The first fma is exact: its result is below 1 and a multiple of 2^-53 where n is not 0.
LOCKSTEP_HD ReducedAngle reduce_angle(double x) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPi1 = 0x1.921fb54442d18p+0;
  constexpr double kHalfPi2 = 0x1.1a62633145c07p-54;
  constexpr double kHalfPi3 = -0x1.f1976b7ed8fbcp-110;
  const double shifted = std::fma(x, kTwoOverPi, kRoundEvenMagic64);
  const double n = shifted - kRoundEvenMagic64;
  const double a = std::fma(n, -kHalfPi1, x);
  const double w = n * kHalfPi2;
  const double w_error = std::fma(n, kHalfPi2, -w);
  // a - w, with its error, whichever is larger.
  const double r = a - w;
  const double b = r - a;
  const double r_error = (a - (r - b)) - (w + b);
  const double rest = r_error - std::fma(n, kHalfPi3, w_error);
  return {r, rest, static_cast<uint32_t>(double_bits(shifted)) & 3U};
}

LOCKSTEP_HD double sin_reduced(double r, double rest) {
  const double z = r * r;
  const double q = horner<kSinCoefficients>(z);
  return r + std::fma(z * r, q, std::fma(-0.5 * z, rest, rest));
}
LOCKSTEP_HD double cos_reduced(double r, double rest) {
  const double z = r * r;
  const double half = 0.5 * z;
  const double one = 1.0 - half;
  const double error = (1.0 - one) - half;
  const double q = horner<kCosCoefficients>(z);
  return one + (error + std::fma(z * z, q, -(r * rest)));
}

// NaN, infinity and |x| > kMaxAngle: NaN. sin(x) is x where |x| < 2^-27.
LOCKSTEP_HD double sin(double x) {
  if (!(x <= kMaxAngle && x >= -kMaxAngle)) return double_from_bits(kNan64Bits);
  if (x < 0x1p-27 && x > -0x1p-27) return x;
  const ReducedAngle a = reduce_angle(x);
  const double y = (a.quadrant & 1U) != 0 ? cos_reduced(a.r, a.rest) : sin_reduced(a.r, a.rest);
  return (a.quadrant & 2U) != 0 ? -y : y;
}
LOCKSTEP_HD double cos(double x) {
  if (!(x <= kMaxAngle && x >= -kMaxAngle)) return double_from_bits(kNan64Bits);
  const ReducedAngle a = reduce_angle(x);
  const double y = (a.quadrant & 1U) != 0 ? sin_reduced(a.r, a.rest) : cos_reduced(a.r, a.rest);
  return ((a.quadrant + 1U) & 2U) != 0 ? -y : y;
}

}  // namespace lockstep::numerics
