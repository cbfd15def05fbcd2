// SPDX-License-Identifier: Apache-2.0
// Bounds of docs/numerics.md, in units of the last place. Sweeps over binary32 take binary64 functions of
// this folder as reference (within 2^-52, tested against MPFR in math_double_test.cpp), so that they can be
// dense; MPFR itself on fewer inputs.
#include "numerics/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "numerics/mpfr_reference.h"
#include "same_bits.h"

namespace lockstep::numerics {
namespace {

using lockstep::testing::bits_of;
using lockstep::testing::Reference;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;
using lockstep::testing::Worst;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint64_t kStride = 509;  // every kStride-th of the 2^32 patterns

// want: exact to 2^-50 or so.
double distance(float got, double want) {
  if (std::abs(want) >= 0x1.ffffffp127) return std::isinf(got) && (got > 0) == (want > 0) ? 0 : 1e9;
  if (want == 0) return got == 0 ? 0 : 1e9;
  const int exponent = std::max(std::ilogb(want) - 23, -149);
  return std::abs(static_cast<double>(got) - want) * std::ldexp(1.0, -exponent);
}

template <typename Body>
void sweep(Body body) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += kStride) {
    const float x = float_from_bits(static_cast<uint32_t>(bits));
    if (x == x && std::abs(x) < kInfinity) body(x);
  }
}
void expect_bound(const char* name, const Worst& worst, double bound) {
  std::printf("%-14s %.4f ulp at %a\n", name, worst.distance, worst.at);
  EXPECT_LE(worst.distance, bound) << name << " at " << std::hexfloat << worst.at;
}

TEST(Math, ExpAndSigmoidOverAllExponents) {
  Worst exp_worst;
  Worst sigmoid_worst;
  sweep([&](float x) {
    if (std::abs(x) > 110 || std::abs(x) < 0x1p-30F) return;
    const double e = numerics::exp(static_cast<double>(x));
    exp_worst.add(distance(numerics::exp(x), e), x);
    if (x > -88.7F) sigmoid_worst.add(distance(numerics::sigmoid(x), e / (1 + e)), x);
  });
  expect_bound("exp", exp_worst, 0.95);
  expect_bound("sigmoid", sigmoid_worst, 2.5);
}

TEST(Math, ExpAgainstMpfr) {
  TestRandom random(3);
  Reference want;
  Worst worst;
  for (int i = 0; i < 40000; ++i) {
    // -105 .. 90, and every third one in the subnormal results.
    const double u = static_cast<double>(random.next() >> 11) * 0x1p-53;
    const auto x = static_cast<float>(i % 3 == 0 ? -104.5 + 18 * u : -105 + 195 * u);
    want.set(mpfr_exp, static_cast<double>(x));
    worst.add(want.distance32(numerics::exp(x)), x);
  }
  expect_bound("exp (MPFR)", worst, 0.95);
}

TEST(Math, LogAndRsqrtOverAllExponents) {
  Worst log_worst;
  Worst rsqrt_worst;
  sweep([&](float x) {
    if (x <= 0) return;
    log_worst.add(distance(numerics::log(x), numerics::log(static_cast<double>(x))), x);
    rsqrt_worst.add(distance(numerics::rsqrt(x), 1 / std::sqrt(static_cast<double>(x))), x);
  });
  expect_bound("log", log_worst, 0.5001);
  expect_bound("rsqrt", rsqrt_worst, 1.5);
}

TEST(Math, LogAgainstMpfr) {
  TestRandom random(4);
  Reference want;
  Worst worst;
  for (int i = 0; i < 20000; ++i) {
    const float x = float_from_bits(static_cast<uint32_t>(random.below(0x7F800000 - 1) + 1));
    want.set(mpfr_log, static_cast<double>(x));
    worst.add(want.distance32(numerics::log(x)), x);
  }
  expect_bound("log (MPFR)", worst, 0.5001);
}

TEST(Math, Exp2FractionIsWithinItsBound) {
  Worst worst;
  Reference want;
  for (int i = -(1 << 23); i <= 1 << 23; i += 401) {
    const float f = static_cast<float>(i) * 0x1p-24F;
    want.set(mpfr_exp2, static_cast<double>(f));
    worst.add(want.distance32(exp2_fraction(f)), f);
  }
  expect_bound("exp2_fraction", worst, 0.85);
  EXPECT_EQ(bits_of(exp2_fraction(0.0F)), bits_of(1.0F));
  EXPECT_EQ(bits_of(exp2_fraction(-0.0F)), bits_of(1.0F));
  // No seam: 2^(n + 1/2) is the same from either side.
  EXPECT_EQ(exp2_fraction(0.5F), 2 * exp2_fraction(-0.5F));
}

// Neighbouring inputs may fall by the last place, never by more.
TEST(Math, Exp2FractionFallsByAtMostOnePlace) {
  uint32_t highest = 0;
  for (int i = -(1 << 23); i <= 1 << 23; ++i) {
    const uint32_t bits = float_bits(exp2_fraction(static_cast<float>(i) * 0x1p-24F));
    ASSERT_GE(bits + 1, highest) << i;
    highest = std::max(highest, bits);
  }
}

TEST(Math, RoundEvenIsRint) {
  TestRandom random(5);
  for (int i = -4000; i <= 4000; ++i) {
    const float s = static_cast<float>(i) * 0.25F;
    EXPECT_EQ(round_even(s), std::rint(s)) << s;
  }
  for (int i = 0; i < 200000; ++i) {
    const auto s = static_cast<float>((static_cast<double>(random.next() >> 11) * 0x1p-52 - 1) *
                                      std::ldexp(1.0, i % 23));
    if (std::abs(s) >= 0x1p22F) continue;
    ASSERT_EQ(round_even(s), std::rint(s)) << s;
  }
  EXPECT_EQ(bits_of(round_even(-0.25F)), bits_of(0.0F));
}

TEST(Math, PowersOfTwo) {
  for (int e = -126; e <= 127; ++e) EXPECT_EQ(pow2f(e), std::ldexp(1.0F, e));
  for (int e = -200; e <= 127; ++e) {
    const float want = e < -126 ? 0.0F : 1.25F * std::ldexp(1.0F, e);
    EXPECT_EQ(bits_of(scale_by_pow2(1.25F, e)), bits_of(want)) << e;
  }
  EXPECT_EQ(bits_of(scale_by_pow2(-1.0F, -127)), bits_of(0.0F));
}

TEST(Math, Specials) {
  for (const uint32_t bits : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0x7FFFFFFFU}) {
    const float x = float_from_bits(bits);
    EXPECT_EQ(bits_of(numerics::exp(x)), kNanBits);
    EXPECT_EQ(bits_of(numerics::log(x)), kNanBits);
    EXPECT_EQ(bits_of(numerics::rsqrt(x)), kNanBits);
    EXPECT_EQ(bits_of(numerics::sigmoid(x)), kNanBits);
  }
  EXPECT_EQ(bits_of(numerics::exp(0.0F)), bits_of(1.0F));
  EXPECT_EQ(bits_of(numerics::exp(-0.0F)), bits_of(1.0F));
  EXPECT_EQ(numerics::exp(kInfinity), kInfinity);
  EXPECT_EQ(numerics::exp(1e30F), kInfinity);
  EXPECT_EQ(numerics::exp(88.73F), kInfinity);
  EXPECT_LT(numerics::exp(88.72F), kInfinity);
  EXPECT_EQ(bits_of(numerics::exp(-kInfinity)), 0U);
  EXPECT_EQ(bits_of(numerics::exp(-1e30F)), 0U);
  EXPECT_EQ(bits_of(numerics::exp(-103.9F)), 1U);  // the smallest subnormal
  EXPECT_EQ(bits_of(numerics::exp(-103.98F)), 0U);
  EXPECT_EQ(numerics::log(0.0F), -kInfinity);
  EXPECT_EQ(numerics::log(-0.0F), -kInfinity);
  EXPECT_EQ(numerics::log(kInfinity), kInfinity);
  EXPECT_EQ(bits_of(numerics::log(-1.0F)), kNanBits);
  EXPECT_EQ(bits_of(numerics::log(1.0F)), 0U);
  EXPECT_EQ(numerics::sigmoid(kInfinity), 1.0F);
  EXPECT_EQ(bits_of(numerics::sigmoid(-kInfinity)), 0U);
  EXPECT_EQ(numerics::sigmoid(0.0F), 0.5F);
  EXPECT_EQ(numerics::rsqrt(4.0F), 0.5F);
  EXPECT_EQ(numerics::rsqrt(0.0F), kInfinity);
  EXPECT_EQ(numerics::rsqrt(-0.0F), -kInfinity);
  EXPECT_EQ(bits_of(numerics::rsqrt(-1.0F)), kNanBits);
  EXPECT_EQ(bits_of(numerics::rsqrt(kInfinity)), 0U);
}

// One at a time, through a pointer the compiler can not see through.
TEST(Math, VectorisedExpEqualsScalarExp) {
  TestRandom random(6);
  std::vector<float> x(100003);
  for (float& value : x) value = float_from_bits(static_cast<uint32_t>(random.next()));
  for (size_t i = 0; i < x.size() / 2; ++i) x[i] = static_cast<float>(random.value()) * 60;
  std::vector<float> together(x.size());
  for (size_t i = 0; i < x.size(); ++i) together[i] = numerics::exp(x[i]);
  float (*volatile scalar)(float) = numerics::exp;
  std::vector<float> single(x.size());
  for (size_t i = 0; i < x.size(); ++i) single[i] = scalar(x[i]);
  EXPECT_TRUE(same_bits(single, together));
}

}  // namespace
}  // namespace lockstep::numerics
