// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu/swiglu.h"

#include <cmath>

#include "cpu_contexts.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using lockstep::testing::for_each_context;
using lockstep::testing::poisoned;
using lockstep::testing::same_bits;
using lockstep::testing::TestRandom;

std::vector<float> inputs(int64_t n, uint64_t seed) {
  TestRandom random(seed);
  const float specials[] = {0.0F,   -0.0F,   1e-42F, -1e-42F, 88.8F, -88.8F,
                            103.9F, -104.1F, 1e30F,  -1e30F,  3e38F, -3e38F};
  std::vector<float> x = random.values(n, 8.0F);
  for (int64_t i = 0; i < n; i += 5) x[i] = specials[random.below(12)];
  return x;
}

TEST(Swiglu, EqualsReference) {
  for (const int64_t f : {1, 7, 8, 255, 256, 257, 1000, 4864}) {
    for (const int64_t rows : {0, 1, 5, 33}) {
      const std::vector<float> gate_up = inputs(rows * 2 * f, f + rows);
      const std::vector<float> dy = TestRandom(f).values(rows * f);
      std::vector<float> y = poisoned(rows * f);
      std::vector<float> d = poisoned(rows * 2 * f);
      swiglu_forward_ref(gate_up.data(), rows, f, y.data());
      swiglu_backward_ref(dy.data(), gate_up.data(), rows, f, d.data());
      for_each_context([&](const cpu::Context& context) {
        std::vector<float> got_y = poisoned(rows * f);
        std::vector<float> got_d = poisoned(rows * 2 * f);
        swiglu_forward_cpu(context, gate_up.data(), rows, f, got_y.data());
        swiglu_backward_cpu(context, dy.data(), gate_up.data(), rows, f, got_d.data());
        EXPECT_TRUE(same_bits(y, got_y)) << f;
        EXPECT_TRUE(same_bits(d, got_d)) << f;
        std::vector<float> in_place = gate_up;
        swiglu_backward_cpu(context, dy.data(), in_place.data(), rows, f, in_place.data());
        EXPECT_TRUE(same_bits(d, in_place)) << f;
      });
      std::vector<float> in_place = gate_up;
      swiglu_backward_ref(dy.data(), in_place.data(), rows, f, in_place.data());
      EXPECT_TRUE(same_bits(d, in_place)) << f;
    }
  }
}

// Outside check: binary64 with libm. Each result is a product of factors of relative error below 2^-21
// (exp within 2^-22, then a few roundings); the gate's derivative has a cancellation of terms below 2, so
// 1e-6 of |d*u| absolute.
TEST(Swiglu, EqualsFormulaInBinary64) {
  for (double g = -30; g < 30; g += 0.37) {
    const float in[2] = {static_cast<float>(g), 1.5F};
    const float dy = 0.75F;
    float y = 0;
    float d[2];
    swiglu_forward_ref(in, 1, 1, &y);
    swiglu_backward_ref(&dy, in, 1, 1, d);
    const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
    const double x = in[0];
    EXPECT_NEAR(y, silu(x) * 1.5, 1e-6 * std::abs(silu(x) * 1.5));
    EXPECT_NEAR(d[1], silu(x) * 0.75, 1e-6 * std::abs(silu(x)));
    EXPECT_NEAR(d[0], 0.75 * 1.5 * (silu(x + 1e-4) - silu(x - 1e-4)) / 2e-4, 2e-6) << x;
  }
}

}  // namespace
}  // namespace lockstep::ops
