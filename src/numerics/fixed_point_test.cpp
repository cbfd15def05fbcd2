// SPDX-License-Identifier: Apache-2.0
// Gradients as integers, and the order of sums over a row.
#include "numerics/fixed_point.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "numerics/reduce.h"
#include "same_bits.h"

namespace lockstep::numerics {
namespace {

using lockstep::testing::bits_of;
using lockstep::testing::TestRandom;

TEST(FixedPoint, NearestEvenMultiples) {
  EXPECT_EQ(gradient_to_fixed(1.0F), int64_t{1} << 44);
  EXPECT_EQ(gradient_to_fixed(-0x1p-44F), -1);
  EXPECT_EQ(gradient_to_fixed(0x1p-45F), 0);      // ties to even
  EXPECT_EQ(gradient_to_fixed(0x1.8p-44F), 2);    // 1.5
  EXPECT_EQ(gradient_to_fixed(-0x1.8p-44F), -2);  // -1.5
  EXPECT_EQ(gradient_to_fixed(0x1.4p-43F), 2);    // 2.5
  EXPECT_EQ(gradient_to_fixed(0x1p-149F), 0);
  EXPECT_EQ(gradient_to_fixed(-0.0F), 0);
  const float largest = std::nextafter(0x1p18F, 0.0F);
  EXPECT_EQ(gradient_to_fixed(largest), (int64_t{1} << 62) - (int64_t{1} << 38));
}

TEST(FixedPoint, FloatsOfMultiplesComeBack) {
  TestRandom random(21);
  for (int i = 0; i < 200000; ++i) {
    const float x =
        std::ldexp(static_cast<float>(random.below(1 << 24)), static_cast<int>(random.below(38)) - 44);
    if (!in_gradient_range(x, 0x1p18F)) continue;
    ASSERT_EQ(bits_of(gradient_from_fixed(gradient_to_fixed(x))), bits_of(x));
    ASSERT_EQ(gradient_to_fixed(-x), -gradient_to_fixed(x));
  }
  // One rounding, from the integer: 2^24 + 1 is a tie, 2^24 + 3 another.
  EXPECT_EQ(gradient_from_fixed((1 << 24) + 1), 0x1p-20F);
  EXPECT_EQ(gradient_from_fixed((1 << 24) + 3), 0x1.000004p-20F);
}

TEST(FixedPoint, TheRangeLeavesRoomForTheSum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const int64_t pieces : {1, 2, 3, 7, 32, 1000, 262144}) {
    const float bound = gradient_bound(pieces);
    EXPECT_FALSE(in_gradient_range(nan, bound));
    EXPECT_FALSE(in_gradient_range(inf, bound));
    EXPECT_FALSE(in_gradient_range(-inf, bound));
    EXPECT_FALSE(in_gradient_range(bound, bound));
    EXPECT_FALSE(in_gradient_range(-bound, bound));
    const float largest = std::nextafter(bound, 0.0F);
    ASSERT_TRUE(in_gradient_range(largest, bound));
    // `pieces` of the largest value and as many of vectors: below 2^63.
    const double sum = static_cast<double>(gradient_to_fixed(largest)) * static_cast<double>(pieces);
    EXPECT_LE(sum, 0x1p62 * (1 + 0x1p-23)) << pieces;
  }
}

// The order, written out once more with other loops.
float plain_row_dot(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> lanes(128, 0.0F);
  for (size_t i = 0; i < a.size(); ++i) lanes[i % 128] = std::fma(a[i], b[i], lanes[i % 128]);
  for (size_t bit = 1; bit < 128; bit *= 2) {
    std::vector<float> next(128);
    for (size_t lane = 0; lane < 128; ++lane) next[lane] = lanes[lane] + lanes[lane ^ bit];
    lanes = next;
  }
  return lanes[0];
}

TEST(Reduce, RowDotIsTheWrittenOrder) {
  TestRandom random(22);
  for (const int64_t n : {0, 1, 5, 127, 128, 129, 255, 256, 896, 1000, 4864, 65536}) {
    const auto a = random.values(n);
    const auto b = random.values(n, 3.0F);
    EXPECT_EQ(bits_of(row_dot(a.data(), b.data(), n)), bits_of(plain_row_dot(a, b))) << n;
  }
}

}  // namespace
}  // namespace lockstep::numerics
