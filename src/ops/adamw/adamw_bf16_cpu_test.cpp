// SPDX-License-Identifier: Apache-2.0
#include "ops/adamw/adamw_bf16_cpu.h"

#include <cmath>

#include "bf16_values.h"
#include "cpu_contexts.h"

namespace lockstep::ops {
namespace {

using namespace lockstep::testing;  // NOLINT: inputs and comparisons only
using numerics::Bf16;

TEST(AdamWBf16Cpu, EqualsReference) {
  for (const int64_t n : {0, 1, 5, 1023, 70001}) {
    TestRandom random(static_cast<uint64_t>(n));
    std::vector<int64_t> image(static_cast<size_t>(n));
    for (int64_t& i : image)
      i = random.below(9) == 0 ? 0 : static_cast<int64_t>(random.next()) >> (2 + random.below(60));
    const std::vector<float> m = random.values(n), w = random.values(n);
    std::vector<float> v = random.values(n);
    for (float& x : v) x = std::fabs(x);
    for (const bool decays : {false, true}) {
      const AdamWFactors factors = adamw_factors(AdamWSettings{}, 1e-3, decays ? 1.0 : 0.3, 7);
      std::vector<float> want_m = m, want_v = v, want_w = w;
      std::vector<Bf16> want = poisoned_bf16(n);
      adamw_bf16_ref(factors, decays, image.data(), n, want_m.data(), want_v.data(), want_w.data(),
                     want.data());
      for_each_context([&](const cpu::Context& context) {
        std::vector<float> got_m = m, got_v = v, got_w = w;
        std::vector<Bf16> got = poisoned_bf16(n);
        adamw_bf16_cpu(context, factors, decays, image.data(), n, got_m.data(), got_v.data(), got_w.data(),
                       got.data());
        EXPECT_TRUE(same_bits(want_m, got_m)) << n;
        EXPECT_TRUE(same_bits(want_v, got_v)) << n;
        EXPECT_TRUE(same_bits(want_w, got_w)) << n;
        EXPECT_TRUE(same_bits(want, got)) << n;
        std::vector<Bf16> rounded = poisoned_bf16(n);
        round_weights_bf16_cpu(context, want_w.data(), n, rounded.data());
        EXPECT_TRUE(same_bits(want, rounded)) << n;
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::ops
