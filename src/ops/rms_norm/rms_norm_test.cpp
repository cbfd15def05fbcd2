// SPDX-License-Identifier: Apache-2.0
#include "ops/rms_norm/rms_norm.h"

#include <cmath>

#include "cpu_contexts.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_context;
using lockstep::testing::poisoned;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;

constexpr float kEps = 1e-6F;

// Rows of usual size, tiny (subnormal squares), huge, zero and with -0.
std::vector<float> rows_of(int64_t rows, int64_t h, uint64_t seed) {
  TestRandom random(seed);
  std::vector<float> x = random.values(rows * h, 3.0F);
  for (int64_t row = 0; row < rows; ++row) {
    const float factors[] = {1.0F, 1e-30F, 1e15F, 0.0F, -0.0F, 1e-42F};
    const float factor = factors[row % 6];
    for (int64_t i = 0; i < h; ++i) x[row * h + i] *= factor;
  }
  return x;
}

TEST(RmsNorm, EqualsReference) {
  for (const int64_t h : {1, 2, 31, 127, 128, 129, 255, 896, 1000}) {
    for (const int64_t rows : {0, 1, 2, 7, 50}) {
      TestRandom random(h);
      const std::vector<float> x = rows_of(rows, h, h + rows);
      const std::vector<float> gain = random.values(h, 2.0F);
      const std::vector<float> dy = random.values(rows * h);
      const std::vector<float> dh = random.values(rows * h);
      std::vector<float> y = poisoned(rows * h);
      std::vector<float> r = poisoned(rows);
      rms_norm_forward_ref(x.data(), gain.data(), kEps, rows, h, y.data(), r.data());
      std::vector<float> want = dh;
      rms_norm_backward_ref(dy.data(), x.data(), gain.data(), r.data(), rows, h, want.data());
      for_each_context([&](const cpu::Context& context) {
        std::vector<float> got_y = poisoned(rows * h);
        std::vector<float> got_r = poisoned(rows);
        rms_norm_forward_cpu(context, x.data(), gain.data(), kEps, rows, h, got_y.data(), got_r.data());
        EXPECT_TRUE(same_bits(y, got_y)) << rows << " x " << h;
        EXPECT_TRUE(same_bits(r, got_r)) << rows << " x " << h;
        std::vector<float> again = poisoned(rows * h);
        rms_norm_forward_cpu(context, x.data(), gain.data(), kEps, rows, h, again.data(), nullptr);
        EXPECT_TRUE(same_bits(y, again));
        std::vector<float> got = dh;
        rms_norm_backward_cpu(context, dy.data(), x.data(), gain.data(), r.data(), rows, h, got.data());
        EXPECT_TRUE(same_bits(want, got)) << rows << " x " << h;
      });
    }
  }
}

// A row's bits are its own: the same alone and among 300 others (a kernel elsewhere changed at 256 rows).
TEST(RmsNorm, RowsAreIndependent) {
  constexpr int64_t kHidden = 96;
  const std::vector<float> x = rows_of(300, kHidden, 1);
  const std::vector<float> gain = TestRandom(2).values(kHidden);
  const cpu::Context context(3, cpu::Isa::kScalar);
  std::vector<float> all = poisoned(300 * kHidden);
  rms_norm_forward_cpu(context, x.data(), gain.data(), kEps, 300, kHidden, all.data(), nullptr);
  for (int64_t row = 0; row < 300; ++row) {
    std::vector<float> one = poisoned(kHidden);
    rms_norm_forward_cpu(context, x.data() + row * kHidden, gain.data(), kEps, 1, kHidden, one.data(),
                         nullptr);
    EXPECT_TRUE(same_bits(all.data() + row * kHidden, one.data(), kHidden)) << row;
  }
}

// Outside check: binary64 with libm. A row of 40 carries under 10 binary32 roundings of relative size 2^-24
// each in r, three more in y; backward adds terms of size up to 5: 1e-5 absolute.
TEST(RmsNorm, EqualsFiniteDifferences) {
  constexpr int64_t kHidden = 40;
  TestRandom random(3);
  const std::vector<float> x = random.values(kHidden, 2.0F);
  const std::vector<float> gain = random.values(kHidden);
  const std::vector<float> dy = random.values(kHidden);
  const auto forward = [&](const std::vector<double>& in) {
    double sum = 0;
    for (const double a : in) sum += a * a;
    const double r = 1 / std::sqrt(sum / kHidden + static_cast<double>(kEps));
    std::vector<double> out(kHidden);
    for (int64_t i = 0; i < kHidden; ++i) out[i] = in[i] * r * gain[i];
    return out;
  };
  std::vector<double> in(x.begin(), x.end());
  std::vector<float> y(kHidden);
  float r = 0;
  rms_norm_forward_ref(x.data(), gain.data(), kEps, 1, kHidden, y.data(), &r);
  const std::vector<double> exact = forward(in);
  std::vector<float> dh(kHidden, 0.0F);
  rms_norm_backward_ref(dy.data(), x.data(), gain.data(), &r, 1, kHidden, dh.data());
  const auto loss = [&] {
    const std::vector<double> out = forward(in);
    double sum = 0;
    for (int64_t i = 0; i < kHidden; ++i) sum += out[i] * dy[i];
    return sum;
  };
  for (int64_t i = 0; i < kHidden; ++i) {
    EXPECT_NEAR(y[i], exact[i], 1e-5);
    const double saved = in[i];
    in[i] = saved + 1e-4;
    const double above = loss();
    in[i] = saved - 1e-4;
    const double below = loss();
    in[i] = saved;
    EXPECT_NEAR(dh[i], (above - below) / 2e-4, 1e-5) << i;
  }
}

}  // namespace
}  // namespace lockstep::ops
