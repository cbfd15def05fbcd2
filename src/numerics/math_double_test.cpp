// SPDX-License-Identifier: Apache-2.0
// The bounds are those of docs/numerics.md. They hold a little above the worst distance seen over 10^8
// inputs; MPFR's result has 200 bits.
#include "numerics/math_double.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "numerics/math.h"
#include "numerics/mpfr_reference.h"
#include "same_bits.h"

namespace lockstep::numerics {
namespace {

using lockstep::testing::bits_of;
using lockstep::testing::MpfrFunction;
using lockstep::testing::Reference;
using lockstep::testing::TestRandom;
using lockstep::testing::Worst;

constexpr int kInputs = 12000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

double uniform(TestRandom& random, double low, double high) {
  return low + (high - low) * (static_cast<double>(random.next() >> 11) * 0x1p-53);
}
// Every exponent alike; finite, of either sign.
double any_finite(TestRandom& random) {
  const double x = double_from_bits(random.next());
  return std::isfinite(x) ? x : 1.0;
}

template <typename Function, typename Input>
void expect_within(const char* name, Function function, MpfrFunction mpfr, double bound, Input input) {
  TestRandom random(20260101);
  Reference want;
  Worst worst;
  for (int i = 0; i < kInputs; ++i) {
    const double x = input(random, i);
    want.set(mpfr, x);
    worst.add(want.distance64(function(x)), x);
  }
  EXPECT_LE(worst.distance, bound) << name << " at " << std::hexfloat << worst.at;
  std::printf("%-28s %.4f ulp at %a\n", name, worst.distance, worst.at);
}

TEST(MathDouble, ExpIsWithinItsBound) {
  const auto f = [](double x) { return numerics::exp(x); };
  expect_within("exp, normal", f, mpfr_exp, 0.9,
                [](TestRandom& r, int) { return uniform(r, -708.3, 709.7); });
  expect_within("exp, near 0", f, mpfr_exp, 0.9, [](TestRandom& r, int) { return uniform(r, -1, 1); });
  // Two roundings: to 53 bits, then to a subnormal.
  expect_within("exp, subnormal", f, mpfr_exp, 1.0,
                [](TestRandom& r, int) { return uniform(r, -745.2, -708.3); });
}

TEST(MathDouble, Exp2IsWithinItsBound) {
  const auto f = [](double x) { return numerics::exp2(x); };
  expect_within("exp2, normal", f, mpfr_exp2, 1.0,
                [](TestRandom& r, int) { return uniform(r, -1022, 1024); });
  expect_within("exp2, near 0", f, mpfr_exp2, 1.0, [](TestRandom& r, int) { return uniform(r, -1, 1); });
  expect_within("exp2, subnormal", f, mpfr_exp2, 1.0,
                [](TestRandom& r, int) { return uniform(r, -1075.2, -1022); });
}

TEST(MathDouble, LogIsWithinItsBound) {
  const auto f = [](double x) { return numerics::log(x); };
  expect_within("log, any", f, mpfr_log, 0.7,
                [](TestRandom& r, int) { return std::abs(any_finite(r)) + 0x1p-1074; });
  expect_within("log, 1/2 .. 2", f, mpfr_log, 0.7, [](TestRandom& r, int) { return uniform(r, 0.5, 2); });
  expect_within("log, near 1", f, mpfr_log, 0.7, [](TestRandom& r, int i) {
    return 1 + uniform(r, -1, 1) * std::ldexp(1.0, -(i % 50)) * 0.5;
  });
}

TEST(MathDouble, Log2IsWithinItsBound) {
  const auto f = [](double x) { return numerics::log2(x); };
  expect_within("log2, any", f, mpfr_log2, 0.7,
                [](TestRandom& r, int) { return std::abs(any_finite(r)) + 0x1p-1074; });
  expect_within("log2, 1/2 .. 2", f, mpfr_log2, 0.7, [](TestRandom& r, int) { return uniform(r, 0.5, 2); });
  expect_within("log2, near 1", f, mpfr_log2, 0.7, [](TestRandom& r, int i) {
    return 1 + uniform(r, -1, 1) * std::ldexp(1.0, -(i % 50)) * 0.5;
  });
  // Sums of weights: integers below 2^64.
  expect_within("log2, u64", f, mpfr_log2, 0.7,
                [](TestRandom& r, int i) { return static_cast<double>((r.next() >> (i % 64)) | 1U); });
}

TEST(MathDouble, SinAndCosAreWithinTheirBounds) {
  const auto check = [](const char* sine, const char* cosine, auto input) {
    expect_within(
        sine, [](double x) { return numerics::sin(x); }, mpfr_sin, 0.85, input);
    expect_within(
        cosine, [](double x) { return numerics::cos(x); }, mpfr_cos, 0.85, input);
  };
  check("sin, |x| < 4", "cos, |x| < 4", [](TestRandom& r, int) { return uniform(r, -4, 4); });
  check("sin, |x| < 2^24", "cos, |x| < 2^24", [](TestRandom& r, int) { return uniform(r, -0x1p24, 0x1p24); });
  check("sin, |x| < 2^30", "cos, |x| < 2^30", [](TestRandom& r, int) { return uniform(r, -0x1p30, 0x1p30); });
  // Positions of RoPE: whole numbers times a frequency below 1.
  check("sin, RoPE", "cos, RoPE", [](TestRandom& r, int i) {
    const double frequency = numerics::exp2(-static_cast<double>(i % 64) / 64 * numerics::log2(1e6));
    return static_cast<double>(r.below(1 << 20)) * frequency;
  });
  // The worst inputs: the doubles nearest to multiples of pi/2.
  check("sin, near n pi/2", "cos, near n pi/2", [](TestRandom& r, int i) {
    const auto n = static_cast<double>(r.below(int64_t{1} << (1 + i % 29)) + 1);
    return n * 0x1.921fb54442d18p+0;
  });
}

TEST(MathDouble, Specials) {
  const uint64_t nan = kNan64Bits;
  for (const double x : {kNan, -kNan, double_from_bits(0x7FF0000000000001ULL)}) {
    EXPECT_EQ(bits_of(numerics::exp(x)), nan);
    EXPECT_EQ(bits_of(numerics::exp2(x)), nan);
    EXPECT_EQ(bits_of(numerics::log(x)), nan);
    EXPECT_EQ(bits_of(numerics::log2(x)), nan);
    EXPECT_EQ(bits_of(numerics::sin(x)), nan);
    EXPECT_EQ(bits_of(numerics::cos(x)), nan);
  }
  for (const double x : {-1.0, -kInfinity, -0x1p-1074}) {
    EXPECT_EQ(bits_of(numerics::log(x)), nan);
    EXPECT_EQ(bits_of(numerics::log2(x)), nan);
  }
  for (const double x : {kInfinity, -kInfinity, 0x1.0000000000001p30, -0x1.0000000000001p30}) {
    EXPECT_EQ(bits_of(numerics::sin(x)), nan);
    EXPECT_EQ(bits_of(numerics::cos(x)), nan);
  }
  EXPECT_EQ(numerics::log(0.0), -kInfinity);
  EXPECT_EQ(numerics::log2(-0.0), -kInfinity);
  EXPECT_EQ(numerics::log(kInfinity), kInfinity);
  EXPECT_EQ(numerics::log2(kInfinity), kInfinity);
  EXPECT_EQ(bits_of(numerics::log(1.0)), bits_of(0.0));
  EXPECT_EQ(bits_of(numerics::exp(0.0)), bits_of(1.0));
  EXPECT_EQ(numerics::exp(kInfinity), kInfinity);
  EXPECT_EQ(numerics::exp(710.0), kInfinity);
  EXPECT_EQ(numerics::exp2(1024.0), kInfinity);
  EXPECT_EQ(bits_of(numerics::exp(-kInfinity)), bits_of(0.0));
  EXPECT_EQ(bits_of(numerics::exp(-746.0)), bits_of(0.0));
  EXPECT_EQ(bits_of(numerics::exp2(-1e300)), bits_of(0.0));
  EXPECT_EQ(bits_of(numerics::sin(-0.0)), bits_of(-0.0));
  EXPECT_EQ(bits_of(numerics::sin(0.0)), bits_of(0.0));
  EXPECT_EQ(bits_of(numerics::cos(0.0)), bits_of(1.0));
}

TEST(MathDouble, PowersOfTwoAreExact) {
  for (int e = -1074; e < 1024; ++e) {
    const double power = std::ldexp(1.0, e);
    EXPECT_EQ(numerics::exp2(e), power) << e;
    EXPECT_EQ(numerics::log2(power), e);
  }
}

}  // namespace
}  // namespace lockstep::numerics
