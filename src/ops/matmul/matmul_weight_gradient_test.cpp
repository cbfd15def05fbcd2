// SPDX-License-Identifier: Apache-2.0
// The gradient of a matrix: chains over rows, cut between calls anywhere, rounded to the integer image.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu_contexts.h"
#include "numerics/constants.h"
#include "numerics/fixed_point.h"
#include "ops/matmul/matmul.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using numerics::gradient_bound;
using numerics::gradient_to_fixed;
using numerics::kGradientChunk;
using testing::for_each_context;
using testing::same_bits;
using testing::TestRandom;

using Image = std::vector<int64_t>;

struct Leaf {
  int64_t rows, n, k, lddy, ldx;
  std::vector<float> dy, x;
};

Leaf make_leaf(int64_t rows, int64_t n, int64_t k, uint64_t seed, float scale = 1.0F) {
  TestRandom random(seed);
  Leaf leaf{rows, n, k, n + 3, k + 5, {}, {}};
  leaf.dy = random.values(std::max<int64_t>(1, rows) * leaf.lddy, scale);
  leaf.x = random.values(std::max<int64_t>(1, rows) * leaf.ldx);
  return leaf;
}

Image start_image(int64_t count) {
  Image image(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) image[static_cast<size_t>(i)] = i * 1000003 - 77;
  return image;
}

Image whole_ref(const Leaf& leaf, float bound, bool* in_range = nullptr) {
  Image image = start_image(leaf.n * leaf.k);
  WeightGradientTarget target;
  target.image = image.data();
  target.bound = bound;
  const bool good = matmul_weight_gradient_ref(leaf.dy.data(), leaf.lddy, leaf.x.data(), leaf.ldx, leaf.rows,
                                               leaf.n, leaf.k, target);
  if (in_range != nullptr) *in_range = good;
  return image;
}

// One leaf in calls that end at `cuts` (ascending, the last is all rows). Scratch starts as NaN.
template <class Call>
Image in_pieces(const Leaf& leaf, const std::vector<int64_t>& cuts, bool with_chunk_sum, const Call& call) {
  Image image = start_image(leaf.n * leaf.k);
  std::vector<float> carry = testing::poisoned(leaf.n * leaf.k);
  std::vector<float> chunk_sum = testing::poisoned(leaf.n * leaf.k);
  int64_t done = 0;
  for (size_t i = 0; i < cuts.size(); ++i) {
    WeightGradientTarget target;
    target.begins = i == 0;
    target.ends = i + 1 == cuts.size();
    target.rows_before = done;
    target.carry = carry.data();
    target.chunk_sum = with_chunk_sum ? chunk_sum.data() : nullptr;
    target.image = image.data();
    target.bound = gradient_bound(1);
    EXPECT_TRUE(
        call(leaf.dy.data() + done * leaf.lddy, leaf.x.data() + done * leaf.ldx, cuts[i] - done, target));
    done = cuts[i];
  }
  return image;
}

TEST(MatmulWeightGradient, EqualsReferenceAtAllSizes) {
  const int64_t shapes[][3] = {{1, 1, 1},     {1, 40, 33},   {2, 7, 16},  {3, 100, 1},
                               {8, 13, 50},   {31, 5, 100},  {65, 6, 17}, {256, 30, 48},
                               {257, 43, 31}, {700, 19, 40}, {0, 9, 21}};
  for (const auto& shape : shapes) {
    SCOPED_TRACE("rows " + std::to_string(shape[0]) + " n " + std::to_string(shape[1]) + " k " +
                 std::to_string(shape[2]));
    const Leaf leaf =
        make_leaf(shape[0], shape[1], shape[2], static_cast<uint64_t>(shape[0] + shape[1] * 77));
    const Image want = whole_ref(leaf, gradient_bound(32));
    for_each_context([&](const cpu::Context& context) {
      Image image = start_image(leaf.n * leaf.k);
      WeightGradientTarget target;
      target.image = image.data();
      target.bound = gradient_bound(32);
      EXPECT_TRUE(matmul_weight_gradient_cpu(context, leaf.dy.data(), leaf.lddy, leaf.x.data(), leaf.ldx,
                                             leaf.rows, leaf.n, leaf.k, target));
      EXPECT_TRUE(same_bits(want, image));
    });
  }
}

TEST(MatmulWeightGradient, ReferenceIsTheChainRoundedOnce) {
  const Leaf leaf = make_leaf(kGradientChunk + 5, 2, 3, 5);
  Image want = start_image(6);
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      float parts[2] = {0.0F, 0.0F};
      for (int64_t t = 0; t < leaf.rows; ++t) {
        float& acc = parts[t / kGradientChunk];
        acc = std::fma(leaf.dy[static_cast<size_t>(t * leaf.lddy + i)],
                       leaf.x[static_cast<size_t>(t * leaf.ldx + j)], acc);
      }
      want[static_cast<size_t>(i * 3 + j)] += gradient_to_fixed(parts[0] + parts[1]);
    }
  }
  EXPECT_TRUE(same_bits(want, whole_ref(leaf, gradient_bound(1))));
}

TEST(MatmulWeightGradient, CutsBetweenCallsChangeNothing) {
  const Leaf leaf = make_leaf(300, 11, 35, 9);
  const Image want = whole_ref(leaf, gradient_bound(1));
  const std::vector<std::vector<int64_t>> all_cuts = {
      {300}, {1, 300}, {299, 300}, {7, 64, 65, 300}, {0, 100, 100, 300}, {128, 300, 300}};
  for (const std::vector<int64_t>& cuts : all_cuts) {
    EXPECT_TRUE(same_bits(want, in_pieces(leaf, cuts, false,
                                          [&](const float* dy, const float* x, int64_t rows,
                                              const WeightGradientTarget& target) {
                                            return matmul_weight_gradient_ref(dy, leaf.lddy, x, leaf.ldx,
                                                                              rows, leaf.n, leaf.k, target);
                                          })));
    for_each_context([&](const cpu::Context& context) {
      EXPECT_TRUE(same_bits(
          want,
          in_pieces(leaf, cuts, false,
                    [&](const float* dy, const float* x, int64_t rows, const WeightGradientTarget& target) {
                      return matmul_weight_gradient_cpu(context, dy, leaf.lddy, x, leaf.ldx, rows, leaf.n,
                                                        leaf.k, target);
                    })));
    });
  }
}

TEST(MatmulWeightGradient, ChunksAreCountedFromTheLeafsStart) {
  constexpr int64_t kC = kGradientChunk;
  for (const int64_t rows : {kC, kC + 1, 2 * kC, 2 * kC + 9}) {
    const Leaf leaf = make_leaf(rows, 7, 18, static_cast<uint64_t>(rows));
    const Image want = whole_ref(leaf, gradient_bound(1));
    std::vector<std::vector<int64_t>> all_cuts = {{rows}, {100, rows}, {kC - 1, rows}, {kC, rows}};
    if (rows > kC) all_cuts.push_back({kC, kC + 1, rows});
    if (rows > 2 * kC) all_cuts.push_back({kC - 5, kC + 5, 2 * kC, rows});
    if (rows > 2 * kC) all_cuts.push_back({2 * kC, rows});
    for (const std::vector<int64_t>& cuts : all_cuts) {
      SCOPED_TRACE("rows " + std::to_string(rows) + " calls " + std::to_string(cuts.size()));
      const bool with_sum = rows > kC;  // the contract: not needed up to one chunk
      EXPECT_TRUE(same_bits(want, in_pieces(leaf, cuts, with_sum,
                                            [&](const float* dy, const float* x, int64_t n,
                                                const WeightGradientTarget& target) {
                                              return matmul_weight_gradient_ref(dy, leaf.lddy, x, leaf.ldx, n,
                                                                                leaf.n, leaf.k, target);
                                            })));
      for_each_context([&](const cpu::Context& context) {
        if (context.threads() == 7) return;
        EXPECT_TRUE(same_bits(
            want,
            in_pieces(leaf, cuts, with_sum,
                      [&](const float* dy, const float* x, int64_t n, const WeightGradientTarget& target) {
                        return matmul_weight_gradient_cpu(context, dy, leaf.lddy, x, leaf.ldx, n, leaf.n,
                                                          leaf.k, target);
                      })));
      });
    }
  }
}

TEST(MatmulWeightGradient, RoundsEveryMagnitudeAlike) {
  // One row, x = 1: the result is dy itself. Ties at half a unit, the largest values in range, subnormals.
  std::vector<float> dy;
  for (int exponent = -60; exponent < 18; ++exponent) {
    for (const float mantissa : {1.0F, 1.5F, 1.25F, 0x1.fffffep0F, 0x1.000002p0F, 0x1.8p0F, 0x1.4p0F}) {
      dy.push_back(std::ldexp(mantissa, exponent));
      dy.push_back(-dy.back());
    }
  }
  for (const float odd : {0.5F, 1.5F, 2.5F, 3.5F, 0.50000006F}) dy.push_back(odd * 0x1p-44F);
  dy.push_back(std::numeric_limits<float>::denorm_min());
  dy.push_back(-0.0F);
  const int64_t n = static_cast<int64_t>(dy.size());
  const std::vector<float> x(48, 1.0F);
  for (const int64_t k : {5, 16, 48}) {
    Image want = start_image(n * k);
    for (int64_t i = 0; i < n * k; ++i)
      want[static_cast<size_t>(i)] += gradient_to_fixed(dy[static_cast<size_t>(i / k)]);
    for_each_context([&](const cpu::Context& context) {
      Image image = start_image(n * k);
      WeightGradientTarget target;
      target.image = image.data();
      target.bound = gradient_bound(1);
      EXPECT_TRUE(matmul_weight_gradient_cpu(context, dy.data(), n, x.data(), k, 1, n, k, target));
      EXPECT_TRUE(same_bits(want, image));
    });
  }
}

TEST(MatmulWeightGradient, OutOfRangeIsToldAndLeftOut) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float bound = gradient_bound(32);
  for (const float bad : {bound, -bound, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    Leaf leaf = make_leaf(1, 25, 40, 3);
    leaf.x[39] = 1.0F;
    leaf.dy[24] = bad;  // row 24 of the image: every element with x != 0
    for (int64_t j = 0; j < 39; ++j) leaf.x[static_cast<size_t>(j)] = j % 2 == 0 ? 1.0F : 0x1p-20F;
    bool good = true;
    const Image want = whole_ref(leaf, bound, &good);
    EXPECT_FALSE(good);
    EXPECT_EQ(want[24 * 40 + 39], start_image(25 * 40)[24 * 40 + 39]);
    for_each_context([&](const cpu::Context& context) {
      Image image = start_image(25 * 40);
      WeightGradientTarget target;
      target.image = image.data();
      target.bound = bound;
      EXPECT_FALSE(matmul_weight_gradient_cpu(context, leaf.dy.data(), leaf.lddy, leaf.x.data(), leaf.ldx, 1,
                                              25, 40, target));
      EXPECT_TRUE(same_bits(want, image));
    });
  }
  Leaf leaf = make_leaf(1, 25, 40, 3);
  leaf.dy[3] = std::nextafter(bound, 0.0F);
  leaf.x.assign(leaf.x.size(), 1.0F);
  for_each_context([&](const cpu::Context& context) {
    Image image = start_image(25 * 40);
    WeightGradientTarget target;
    target.image = image.data();
    target.bound = bound;
    EXPECT_TRUE(matmul_weight_gradient_cpu(context, leaf.dy.data(), leaf.lddy, leaf.x.data(), leaf.ldx, 1, 25,
                                           40, target));
  });
}

}  // namespace
}  // namespace lockstep::ops
