// SPDX-License-Identifier: Apache-2.0
#include "ops/adamw/adamw.h"

#include <bit>
#include <cmath>

#include "cpu_contexts.h"
#include "numerics/fixed_point.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_context;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;

TEST(AdamW, EqualsReference) {
  for (const int64_t n : {1, 7, 255, 256, 257, 5000, 40000}) {
    TestRandom random(n);
    std::vector<int64_t> image(n);
    for (int64_t& x : image) x = static_cast<int64_t>(random.next()) >> (2 + random.below(62));
    image[0] = 0;
    const std::vector<float> m0 = random.values(n, 1e-3F);
    std::vector<float> v0 = random.values(n, 1e-4F);
    for (float& x : v0) x = x * x;
    v0[n / 2] = 1e-42F;
    const std::vector<float> w0 = random.values(n);
    const AdamWFactors factors = adamw_factors({}, 1e-3, 0.37, 12);
    for (const bool decay : {false, true}) {
      std::vector<float> m = m0;
      std::vector<float> v = v0;
      std::vector<float> w = w0;
      adamw_ref(factors, decay, image.data(), n, m.data(), v.data(), w.data());
      for_each_context([&](const cpu::Context& context) {
        std::vector<float> gm = m0;
        std::vector<float> gv = v0;
        std::vector<float> gw = w0;
        adamw_cpu(context, factors, decay, image.data(), n, gm.data(), gv.data(), gw.data());
        EXPECT_TRUE(same_bits(m, gm));
        EXPECT_TRUE(same_bits(v, gv));
        EXPECT_TRUE(same_bits(w, gw));
      });
    }
  }
}

TEST(AdamW, FactorsAreRoundedOnceFromBinary64) {
  const AdamWFactors f = adamw_factors({0.9, 0.98, 1e-8, 0.1}, 1e-6, 0.5, 3);
  EXPECT_EQ(f.beta1, 0.9F);
  EXPECT_EQ(f.one_minus_beta1, static_cast<float>(1.0 - 0.9));
  EXPECT_EQ(f.one_minus_beta2, static_cast<float>(1.0 - 0.98));
  EXPECT_EQ(f.correction1, static_cast<float>(1.0 / (1.0 - 0.9 * 0.9 * 0.9)));
  EXPECT_EQ(f.correction2, static_cast<float>(1.0 / (1.0 - 0.98 * 0.98 * 0.98)));
  EXPECT_EQ(f.negative_lr, -1e-6F);
  EXPECT_EQ(f.clip, 0.5F);
}

// Outside check: textbook AdamW in binary64. A step carries about ten binary32 roundings: 1e-6 relative of
// the step, plus half a unit of w a step.
TEST(AdamW, FollowsTheTextbook) {
  const AdamWSettings settings{0.9, 0.98, 1e-8, 0.1};
  float w = 0.75F;
  float m = 0;
  float v = 0;
  double dw = 0.75;
  double dm = 0;
  double dv = 0;
  for (int64_t step = 1; step <= 50; ++step) {
    const double g = 0.01 * static_cast<double>(step % 7) - 0.02;
    const int64_t image = numerics::gradient_to_fixed(static_cast<float>(g));
    const AdamWFactors f = adamw_factors(settings, 1e-2, 1.0, step);
    adamw_ref(f, true, &image, 1, &m, &v, &w);
    dm = 0.9 * dm + 0.1 * g;
    dv = 0.98 * dv + 0.02 * g * g;
    const double t = static_cast<double>(step);
    const double update = dm / (1 - std::pow(0.9, t)) / (std::sqrt(dv / (1 - std::pow(0.98, t))) + 1e-8);
    dw -= 1e-2 * (update + 0.1 * dw);
    EXPECT_NEAR(w, dw, 50 * (1e-8 + 6e-8));
  }
}

uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Small updates are not lost in the binary32 master: a constant gradient moves a weight by lr a step. In
// bfloat16 alone 1.0 would stay 1.0 for ever.
TEST(AdamW, SmallUpdatesAreKept) {
  const AdamWSettings settings{0.9, 0.999, 1e-12, 0.0};
  const int64_t image = numerics::gradient_to_fixed(1.0F);
  float w = 1.0F;
  float m = 0;
  float v = 0;
  for (int64_t step = 1; step <= 100; ++step)
    adamw_ref(adamw_factors(settings, 6e-4, 1.0, step), false, &image, 1, &m, &v, &w);
  EXPECT_NEAR(w, 0.94, 1e-5);

  w = 0.02001953125F;  // 0.02 as loaded from a bfloat16 checkpoint
  m = v = 0;
  int64_t moved = 0;
  for (int64_t step = 1; step <= 100 && moved == 0; ++step) {
    adamw_ref(adamw_factors(settings, 1e-6, 1.0, step), false, &image, 1, &m, &v, &w);
    if (to_bf16(w) != to_bf16(0.02F)) moved = step;
  }
  EXPECT_NEAR(static_cast<double>(moved), 62.0, 1.0);
  EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(to_bf16(w)) << 16), 0.0198974609375F);
}

}  // namespace
}  // namespace lockstep::ops
