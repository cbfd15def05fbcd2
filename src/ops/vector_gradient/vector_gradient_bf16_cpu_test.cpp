// SPDX-License-Identifier: Apache-2.0
#include "ops/vector_gradient/vector_gradient_bf16_cpu.h"

#include <gtest/gtest.h>

#include <vector>

#include "cpu_contexts.h"
#include "same_bits.h"

namespace lockstep::ops {
namespace {

using testing::for_each_context;
using testing::same_bits;
using testing::TestRandom;

TEST(VectorGradientBf16Cpu, EqualsTheReference) {
  for (const bool specials : {false, true}) {
    for (const int64_t h : {1, 63, 64, 65, 200}) {
      TestRandom random(static_cast<uint64_t>(h));
      const std::vector<SampleRows> samples = {{0, 1}, {16, 80}, {80, 145}, {160, 330}};
      constexpr int64_t kRows = 336;
      std::vector<numerics::Bf16> dy(static_cast<size_t>(kRows * h)), x(dy.size());
      for (auto* list : {&dy, &x}) {
        for (numerics::Bf16& value : *list) {
          value = numerics::float_to_bfloat16(random.value());
          if (specials && random.below(100) == 0) value = static_cast<numerics::Bf16>(random.next());
        }
      }
      const std::vector<float> r = random.values(kRows);
      const float bound = specials ? 3.0F : 1000.0F;
      std::vector<int64_t> gain(static_cast<size_t>(h), 3), bias = gain;
      const bool gain_good =
          gain_gradient_bf16_ref(dy.data(), x.data(), r.data(), h, samples.data(), 4, bound, gain.data());
      const bool bias_good = bias_gradient_bf16_ref(dy.data(), h, h, samples.data(), 4, bound, bias.data());
      for_each_context([&](const cpu::Context& context) {
        std::vector<int64_t> got(static_cast<size_t>(h), 3);
        EXPECT_EQ(gain_good, gain_gradient_bf16_cpu(context, dy.data(), x.data(), r.data(), h, samples.data(),
                                                    4, bound, got.data()));
        EXPECT_TRUE(same_bits(gain, got));
        got.assign(static_cast<size_t>(h), 3);
        EXPECT_EQ(bias_good,
                  bias_gradient_bf16_cpu(context, dy.data(), h, h, samples.data(), 4, bound, got.data()));
        EXPECT_TRUE(same_bits(bias, got));
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::ops
