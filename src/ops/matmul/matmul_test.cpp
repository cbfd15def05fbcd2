// SPDX-License-Identifier: Apache-2.0
// Products against their definition, byte for byte: every instruction set of this machine and 1 to 7 threads.
#include "ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu_contexts.h"
#include "numerics/constants.h"
#include "numerics/fixed_point.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using numerics::kForwardChunk;
using numerics::kGradientChunk;
using testing::for_each_context;
using testing::poisoned;
using testing::same_bits;
using testing::TestRandom;

struct Shape {
  int64_t m, n, k;
};

// Inputs of which about one in 16 is a special finite value.
std::vector<float> mixed(TestRandom& random, int64_t count) {
  std::vector<float> out = random.values(count);
  for (float& x : out) {
    switch (random.below(64)) {
      case 0:
        x = -0.0F;
        break;
      case 1:
        x = 0.0F;
        break;
      case 2:
        x = std::bit_cast<float>(static_cast<uint32_t>(random.below(0x00800000)));  // subnormal
        break;
      case 3:
        x *= 0x1p-100F;  // products below the smallest subnormal
        break;
      default:
        break;
    }
  }
  return out;
}

std::vector<float> forward_ref(const std::vector<float>& x, int64_t ldx, const std::vector<float>& w, Shape s,
                               const MatmulEpilogue& epilogue, std::vector<float> y, int64_t ldy) {
  matmul_forward_ref(x.data(), ldx, w.data(), s.m, s.n, s.k, epilogue, y.data(), ldy);
  return y;
}

TEST(MatmulForward, EqualsReferenceAtAllSizes) {
  const Shape shapes[] = {{1, 1, 1},    {1, 17, 1},   {2, 16, 3},    {3, 33, 65},  {4, 15, 129},
                          {5, 1, 7},    {6, 40, 255}, {7, 100, 257}, {8, 31, 896}, {13, 70, 300},
                          {29, 65, 47}, {50, 18, 63}, {211, 35, 21}, {9, 1100, 5}};
  for (const Shape& s : shapes) {
    SCOPED_TRACE("m " + std::to_string(s.m) + " n " + std::to_string(s.n) + " k " + std::to_string(s.k));
    TestRandom random(static_cast<uint64_t>(s.m * 1000003 + s.n * 1009 + s.k));
    const int64_t ldx = s.k + 5;
    const int64_t ldy = s.n + 3;
    const std::vector<float> x = mixed(random, s.m * ldx);
    const std::vector<float> w = mixed(random, s.n * s.k);
    const std::vector<float> want = forward_ref(x, ldx, w, s, {}, poisoned(s.m * ldy), ldy);
    for_each_context([&](const cpu::Context& context) {
      PackedMatrix packed;
      packed.pack(context, w.data(), s.n, s.k);
      EXPECT_EQ(packed.n(), s.n);
      EXPECT_LE(packed.size_bytes(), PackedMatrix::bytes_for(context, s.n, s.k));
      std::vector<float> y = poisoned(s.m * ldy);
      matmul_forward_cpu(context, x.data(), ldx, packed, s.m, {}, y.data(), ldy);
      EXPECT_TRUE(same_bits(want.data(), y.data(), s.m * ldy, ldy));  // gaps stay poisoned
    });
  }
}

TEST(MatmulForward, ChunksOfLongRowsBiasAndResidualInPlace) {
  for (const int64_t k : {kForwardChunk - 1, kForwardChunk, kForwardChunk + 1, 2 * kForwardChunk + 300}) {
    for (const int64_t m : {1, 2, 3, 4, 5, 14}) {
      SCOPED_TRACE("k " + std::to_string(k) + " m " + std::to_string(m));
      const Shape s = {m, 37, k};
      TestRandom random(static_cast<uint64_t>(k * 100 + m));
      const std::vector<float> x = mixed(random, m * k);
      const std::vector<float> w = mixed(random, s.n * k);
      const std::vector<float> bias = random.values(s.n);
      const std::vector<float> residual = random.values(m * 41);
      const MatmulEpilogue epilogue = {bias.data(), residual.data(), 41};
      const std::vector<float> want = forward_ref(x, k, w, s, epilogue, residual, 41);
      for_each_context([&](const cpu::Context& context) {
        PackedMatrix packed;
        packed.pack(context, w.data(), s.n, k);
        std::vector<float> y = residual;
        matmul_forward_cpu(context, x.data(), k, packed, m, {bias.data(), y.data(), 41}, y.data(), 41);
        EXPECT_TRUE(same_bits(want.data(), y.data(), m * 41, 41));
      });
    }
  }
}

TEST(MatmulForward, ChunkIsNotContinued) {
  // 2^24 + 1 is lost in a chain; a fresh chunk keeps the ones until they count.
  const int64_t k = 2 * kForwardChunk;
  std::vector<float> x(static_cast<size_t>(k), 1.0F);
  std::vector<float> w(static_cast<size_t>(k), 0.0F);
  w[0] = 0x1p24F;
  for (int64_t i = kForwardChunk; i < k; ++i) w[static_cast<size_t>(i)] = 1.0F;
  float y = 0;
  matmul_forward_ref(x.data(), k, w.data(), 1, 1, k, {}, &y, 1);
  EXPECT_EQ(y, 0x1p24F + static_cast<float>(kForwardChunk));
}

TEST(MatmulForward, ARowDoesNotSeeItsNeighbours) {
  const Shape s = {15, 50, 1030};
  TestRandom random(7);
  const std::vector<float> x = mixed(random, s.m * s.k);
  const std::vector<float> w = mixed(random, s.n * s.k);
  for_each_context([&](const cpu::Context& context) {
    PackedMatrix packed;
    packed.pack(context, w.data(), s.n, s.k);
    std::vector<float> all = poisoned(s.m * s.n);
    matmul_forward_cpu(context, x.data(), s.k, packed, s.m, {}, all.data(), s.n);
    for (int64_t bad = 0; bad < s.m; bad += 5) {
      std::vector<float> dirty = x;
      dirty[static_cast<size_t>(bad * s.k + 3)] = std::numeric_limits<float>::infinity();
      dirty[static_cast<size_t>(bad * s.k + 9)] = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> y = poisoned(s.m * s.n);
      matmul_forward_cpu(context, dirty.data(), s.k, packed, s.m, {}, y.data(), s.n);
      for (int64_t row = 0; row < s.m; ++row) {
        if (row == bad) {
          for (int64_t j = 0; j < s.n; ++j) EXPECT_TRUE(std::isnan(y[static_cast<size_t>(row * s.n + j)]));
        } else {
          EXPECT_TRUE(same_bits(all.data() + row * s.n, y.data() + row * s.n, s.n));
        }
      }
    }
    for (int64_t begin = 0; begin < s.m; begin += 4) {  // any batch: the same row
      const int64_t rows = std::min<int64_t>(begin % 3 + 1, s.m - begin);
      std::vector<float> y = poisoned(rows * s.n);
      matmul_forward_cpu(context, x.data() + begin * s.k, s.k, packed, rows, {}, y.data(), s.n);
      EXPECT_TRUE(same_bits(all.data() + begin * s.n, y.data(), rows * s.n, s.n));
    }
  });
}

TEST(MatmulForward, PanelsHoldTheirRowsAndZerosPastTheEnd) {
  const int64_t n = 37;
  const int64_t k = 70;
  TestRandom random(11);
  const std::vector<float> w = random.values(n * k);
  for_each_context([&](const cpu::Context& context) {
    PackedMatrix packed;
    packed.pack(context, std::vector<float>(64 * k, 1.0F).data(), 64, k);  // old contents must not show
    packed.pack(context, w.data(), n, k);
    for (int64_t row = 0; row < (n + packed.width() - 1) / packed.width() * packed.width(); ++row) {
      const float* panel = packed.panel(row / packed.width()) + row % packed.width();
      for (int64_t i = 0; i < k; ++i) {
        const float want = row < n ? w[static_cast<size_t>(row * k + i)] : 0.0F;
        ASSERT_EQ(testing::bits_of(want), testing::bits_of(panel[i * packed.width()])) << row << " " << i;
      }
    }
  });
}

TEST(MatmulForward, PackedMemoryIsTheMatrixAndIsReused) {
  for_each_context([](const cpu::Context& context) {
    PackedMatrix packed;
    const std::vector<float> w(64 * 10, 1.0F);
    packed.pack(context, w.data(), 64, 10);
    const float* first = packed.panel(0);
    EXPECT_EQ(packed.size_bytes(), 64 * 10 * 4);
    packed.pack(context, w.data(), 32, 10);
    EXPECT_EQ(packed.panel(0), first);
    EXPECT_EQ(packed.n(), 32);
  });
}

TEST(MatmulInputGradient, EqualsReferenceAtAllSizes) {
  const Shape shapes[] = {{1, 1, 1},      {1, 300, 17}, {1, 29, 300}, {2, 9, 33},    {3, 64, 1},
                          {4, 500, 70},   {5, 257, 16}, {6, 65, 100}, {8, 1000, 31}, {17, 70, 48},
                          {65, 300, 130}, {100, 3, 9},  {200, 40, 65}};
  for (const Shape& s : shapes) {
    SCOPED_TRACE("m " + std::to_string(s.m) + " n " + std::to_string(s.n) + " k " + std::to_string(s.k));
    TestRandom random(static_cast<uint64_t>(s.m * 1000003 + s.n * 1009 + s.k + 1));
    const int64_t lddy = s.n + 2;
    const int64_t lddx = s.k + 7;
    const std::vector<float> dy = mixed(random, s.m * lddy);
    const std::vector<float> w = mixed(random, s.n * s.k);
    std::vector<float> want = poisoned(s.m * lddx);
    matmul_input_gradient_ref(dy.data(), lddy, w.data(), s.m, s.n, s.k, want.data(), lddx);
    for_each_context([&](const cpu::Context& context) {
      std::vector<float> dx = poisoned(s.m * lddx);
      matmul_input_gradient_cpu(context, dy.data(), lddy, w.data(), s.m, s.n, s.k, dx.data(), lddx);
      EXPECT_TRUE(same_bits(want.data(), dx.data(), s.m * lddx, lddx));
    });
  }
}

TEST(MatmulInputGradient, ChunksOfLongChains) {
  for (const int64_t n : {kGradientChunk - 1, kGradientChunk, kGradientChunk + 1, 2 * kGradientChunk + 77}) {
    for (const int64_t m : {1, 7, 50}) {
      SCOPED_TRACE("n " + std::to_string(n) + " m " + std::to_string(m));
      const int64_t k = 19;
      TestRandom random(static_cast<uint64_t>(n + m));
      const std::vector<float> dy = mixed(random, m * n);
      const std::vector<float> w = mixed(random, n * k);
      std::vector<float> want = poisoned(m * k);
      matmul_input_gradient_ref(dy.data(), n, w.data(), m, n, k, want.data(), k);
      for_each_context([&](const cpu::Context& context) {
        std::vector<float> dx = poisoned(m * k);
        matmul_input_gradient_cpu(context, dy.data(), n, w.data(), m, n, k, dx.data(), k);
        EXPECT_TRUE(same_bits(want.data(), dx.data(), m * k, k));
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::ops
