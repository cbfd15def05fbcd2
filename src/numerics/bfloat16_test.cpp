// SPDX-License-Identifier: Apache-2.0
#include "numerics/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>

#include "same_bits.h"

namespace lockstep::numerics {
namespace {

TEST(Bfloat16, EveryValueSurvivesThereAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto x = static_cast<uint16_t>(bits);
    const float wide = bfloat16_to_float(x);
    EXPECT_EQ(float_bits(wide), bits << 16);
    const bool is_nan = (bits & 0x7FFFU) > 0x7F80U;
    EXPECT_EQ(float_to_bfloat16(wide), is_nan ? bits | 0x40U : bits);
  }
}

// Around each bfloat16: just below and above the middle to the next, and the middle itself.
TEST(Bfloat16, NearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7F80U; ++bits) {
    const uint32_t middle = (bits << 16) + 0x8000U;
    for (const uint32_t sign : {0U, 0x8000U}) {
      const uint32_t wide_sign = sign << 16;
      EXPECT_EQ(float_to_bfloat16(float_from_bits((middle - 1) | wide_sign)), bits | sign);
      EXPECT_EQ(float_to_bfloat16(float_from_bits(middle | wide_sign)), ((bits + 1) & ~1U) | sign);
      EXPECT_EQ(float_to_bfloat16(float_from_bits((middle + 1) | wide_sign)), (bits + 1) | sign);
    }
  }
  EXPECT_EQ(float_to_bfloat16(3.4e38F), 0x7F80U);  // to infinity, as nearest even does
  EXPECT_EQ(float_to_bfloat16(float_from_bits(0x7F800001U)), 0x7FC0U);
  EXPECT_EQ(float_to_bfloat16(float_from_bits(0xFFFFFFFFU)), 0xFFFFU);
}

TEST(Float16, EveryValueIsExact) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float got = float16_to_float(static_cast<uint16_t>(bits));
    const int field = static_cast<int>((bits >> 10) & 31U);
    const auto fraction = static_cast<double>(bits & 1023U);
    const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
    if (field == 31) {
      EXPECT_EQ(std::isnan(got), fraction != 0);
      EXPECT_EQ(std::isinf(got), fraction == 0);
      EXPECT_EQ(float_bits(got) >> 31, bits >> 15);
      EXPECT_EQ((float_bits(got) >> 22) & 1U, fraction != 0 ? 1U : 0U) << "quiet";
      continue;
    }
    const double want =
        sign * (field == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, field - 25));
    EXPECT_EQ(lockstep::testing::bits_of(got), lockstep::testing::bits_of(static_cast<float>(want))) << bits;
  }
}

}  // namespace
}  // namespace lockstep::numerics
