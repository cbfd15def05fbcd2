// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope.h"

#include <cmath>

#include "cpu_contexts.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_context;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;

TEST(Rope, EqualsReference) {
  const cpu::Context one(1, cpu::Isa::kScalar);
  for (const int64_t head_size : {2, 8, 24, 64, 90, 128, 256}) {
    const RopeTable table = make_rope_table(one, 1e6, head_size, 300);
    for (const int64_t heads : {1, 3, 16}) {
      const int64_t rows = 120;
      const int64_t ld = heads * head_size + 5;
      TestRandom random(head_size + heads);
      std::vector<float> x = random.values(rows * ld);
      for (int64_t i = 0; i < ld; ++i) x[i] = i % 2 == 0 ? -0.0F : 1e-42F;
      std::vector<int32_t> positions(rows);
      for (int32_t& p : positions) p = static_cast<int32_t>(random.below(300));
      for (const bool inverse : {false, true}) {
        std::vector<float> want = x;
        rope_ref(table, positions.data(), rows, heads, inverse, want.data(), ld);
        for (int64_t row = 0; row < rows; ++row)  // columns of other matrices stay
          EXPECT_TRUE(same_bits(x.data() + row * ld + heads * head_size,
                                want.data() + row * ld + heads * head_size, 5));
        for_each_context([&](const cpu::Context& context) {
          std::vector<float> got = x;
          rope_cpu(context, table, positions.data(), rows, heads, inverse, got.data(), ld);
          EXPECT_TRUE(same_bits(want, got));
        });
      }
    }
  }
}

// The table does not depend on threads, and is binary32 of exact cos and sin: a position of 2^15 has an angle
// of up to 2^15 that binary64 knows to 2^-37, so the rounded value is off by at most one half unit plus that.
TEST(Rope, TableIsAccurate) {
  const cpu::Context one(1, cpu::Isa::kScalar);
  const RopeTable table = make_rope_table(one, 1e6, 64, 32769);
  for_each_context([&](const cpu::Context& context) {
    const RopeTable other = make_rope_table(context, 1e6, 64, 300);
    EXPECT_TRUE(same_bits(table.cos.data(), other.cos.data(), 300 * 32));
    EXPECT_TRUE(same_bits(table.sin.data(), other.sin.data(), 300 * 32));
  });
  for (const int64_t position : {0, 1, 2, 100, 4095, 32768}) {
    for (int64_t i = 0; i < 32; ++i) {
      const long double angle = position * std::pow(1e6L, -static_cast<long double>(2 * i) / 64);
      EXPECT_NEAR(table.cos[position * 32 + i], static_cast<double>(std::cos(angle)), 0x1p-25 + 0x1p-36);
      EXPECT_NEAR(table.sin[position * 32 + i], static_cast<double>(std::sin(angle)), 0x1p-25 + 0x1p-36);
    }
  }
  EXPECT_EQ(table.cos[0], 1.0F);
  EXPECT_EQ(table.sin[0], 0.0F);
}

// Rotation and its inverse are transposes: the gradient of sum(dy * rope(x)) is rope^-1(dy).
TEST(Rope, InverseIsTheGradient) {
  const cpu::Context one(1, cpu::Isa::kScalar);
  const RopeTable table = make_rope_table(one, 10000.0, 8, 50);
  const int32_t position = 37;
  TestRandom random(1);
  std::vector<float> dy = random.values(8);
  std::vector<float> dx = dy;
  rope_ref(table, &position, 1, 1, true, dx.data(), 8);
  for (int64_t i = 0; i < 8; ++i) {
    std::vector<float> unit(8, 0.0F);
    unit[i] = 1.0F;
    rope_ref(table, &position, 1, 1, false, unit.data(), 8);
    double dot = 0;
    for (int64_t j = 0; j < 8; ++j) dot += static_cast<double>(unit[j]) * dy[j];
    EXPECT_NEAR(dx[i], dot, 3e-7);  // two products of size below 2, rounded to binary32
  }
}

}  // namespace
}  // namespace lockstep::ops
