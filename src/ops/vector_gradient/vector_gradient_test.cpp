// SPDX-License-Identifier: Apache-2.0
#include "ops/vector_gradient/vector_gradient.h"

#include <limits>

#include "cpu_contexts.h"
#include "numerics/fixed_point.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_context;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;

struct Data {
  int64_t rows, n, ld;
  std::vector<float> dy, x, r;
  std::vector<SampleRows> samples;
  Data(const std::vector<int64_t>& lengths, int64_t columns, int64_t stride, uint64_t seed)
      : rows(0), n(columns), ld(stride) {
    for (const int64_t length : lengths) {
      samples.push_back({rows, rows + length});
      rows += length;
    }
    TestRandom random(seed);
    dy = random.values(rows * ld, 0.1F);
    x = random.values(rows * ld, 3.0F);
    r = random.values(rows, 2.0F);
  }
  auto count() const { return static_cast<int64_t>(samples.size()); }
};

TEST(VectorGradient, EqualsReference) {
  for (const int64_t n : {1, 63, 64, 65, 200, 896}) {
    const Data d({1, 63, 64, 65, 128, 130, 0, 7}, n, n, n);
    std::vector<int64_t> gain(n, 5);
    std::vector<int64_t> bias(n, 6);
    ASSERT_TRUE(gain_gradient_ref(d.dy.data(), d.x.data(), d.r.data(), n, d.samples.data(), d.count(), 100.0F,
                                  gain.data()));
    ASSERT_TRUE(bias_gradient_ref(d.dy.data(), n, n, d.samples.data(), d.count(), 100.0F, bias.data()));
    for_each_context([&](const cpu::Context& context) {
      std::vector<int64_t> got_gain(n, 5);
      std::vector<int64_t> got_bias(n, 6);
      EXPECT_TRUE(gain_gradient_cpu(context, d.dy.data(), d.x.data(), d.r.data(), n, d.samples.data(),
                                    d.count(), 100.0F, got_gain.data()));
      EXPECT_TRUE(bias_gradient_cpu(context, d.dy.data(), n, n, d.samples.data(), d.count(), 100.0F,
                                    got_bias.data()));
      EXPECT_TRUE(same_bits(gain, got_gain));
      EXPECT_TRUE(same_bits(bias, got_bias));
    });
  }
}

// q, k, v share a matrix: the bias of a part of the columns, with a row stride; columns beyond are not
// touched.
TEST(VectorGradient, RowStride) {
  const Data d({40, 90}, 33, 50, 1);
  std::vector<int64_t> want(50, 0);
  ASSERT_TRUE(bias_gradient_ref(d.dy.data(), 50, 33, d.samples.data(), 2, 100.0F, want.data()));
  for (int64_t j = 33; j < 50; ++j) EXPECT_EQ(want[j], 0);
  for_each_context([&](const cpu::Context& context) {
    std::vector<int64_t> got(50, 0);
    EXPECT_TRUE(bias_gradient_cpu(context, d.dy.data(), 50, 33, d.samples.data(), 2, 100.0F, got.data()));
    EXPECT_TRUE(same_bits(want, got));
  });
}

// Samples in any order and any split over calls: one image.
TEST(VectorGradient, SplitOverCallsIsFree) {
  const Data d({70, 5, 200, 64}, 30, 30, 2);
  std::vector<int64_t> want(30, 0);
  ASSERT_TRUE(
      gain_gradient_ref(d.dy.data(), d.x.data(), d.r.data(), 30, d.samples.data(), 4, 100.0F, want.data()));
  const cpu::Context context(2, cpu::Isa::kScalar);
  std::vector<int64_t> got(30, 0);
  for (const int i : {2, 0, 3, 1}) {
    EXPECT_TRUE(gain_gradient_cpu(context, d.dy.data(), d.x.data(), d.r.data(), 30, d.samples.data() + i, 1,
                                  100.0F, got.data()));
  }
  EXPECT_TRUE(same_bits(want, got));
}

TEST(VectorGradient, LeavesOutPiecesOutOfRange) {
  for (const float bad :
       {50.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Data d({100}, 70, 70, 3);
    d.dy[10 * 70 + 5] = bad;   // first piece
    d.dy[80 * 70 + 66] = bad;  // second
    std::vector<int64_t> want(70, 0);
    EXPECT_FALSE(bias_gradient_ref(d.dy.data(), 70, 70, d.samples.data(), 1, 30.0F, want.data()));
    float second = 0.0F;
    for (int64_t t = 64; t < 100; ++t) second = second + d.dy[t * 70 + 5];
    EXPECT_EQ(want[5], numerics::gradient_to_fixed(second));
    std::vector<int64_t> want_gain(70, 0);
    d.x[10 * 70 + 5] = 1.0F;
    d.x[80 * 70 + 66] = 1.0F;
    d.r[10] = d.r[80] = 1.0F;
    EXPECT_FALSE(gain_gradient_ref(d.dy.data(), d.x.data(), d.r.data(), 70, d.samples.data(), 1, 30.0F,
                                   want_gain.data()));
    for_each_context([&](const cpu::Context& context) {
      std::vector<int64_t> got(70, 0);
      EXPECT_FALSE(bias_gradient_cpu(context, d.dy.data(), 70, 70, d.samples.data(), 1, 30.0F, got.data()));
      EXPECT_TRUE(same_bits(want, got));
      std::vector<int64_t> got_gain(70, 0);
      EXPECT_FALSE(gain_gradient_cpu(context, d.dy.data(), d.x.data(), d.r.data(), 70, d.samples.data(), 1,
                                     30.0F, got_gain.data()));
      EXPECT_TRUE(same_bits(want_gain, got_gain));
    });
  }
}

}  // namespace
}  // namespace lockstep::ops
