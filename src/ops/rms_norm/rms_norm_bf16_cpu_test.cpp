// SPDX-License-Identifier: Apache-2.0
#include "ops/rms_norm/rms_norm_bf16_cpu.h"

#include "bf16_values.h"
#include "cpu_contexts.h"

namespace lockstep::ops {
namespace {

using namespace lockstep::testing;  // NOLINT: inputs and comparisons only
using numerics::Bf16;

constexpr float kEps = 1e-6F;

TEST(RmsNormBf16Cpu, EqualsReference) {
  for (const int64_t h : {1, 2, 31, 127, 128, 129, 255, 896, 1000}) {
    for (const int64_t rows : {0, 1, 2, 7, 50}) {
      std::vector<Bf16> x = mixed_bf16(rows * h, static_cast<uint64_t>(h + rows), 3.0F);
      if (rows > 2) std::fill_n(x.begin() + h, h, Bf16{0});  // padding
      const std::vector<Bf16> gain = mixed_bf16(h, 2), dy = mixed_bf16(rows * h, 3),
                              dh = mixed_bf16(rows * h, 4);
      std::vector<Bf16> y = poisoned_bf16(rows * h), want = dh;
      std::vector<float> r = poisoned(rows);
      rms_norm_forward_bf16_ref(x.data(), gain.data(), kEps, rows, h, y.data(), r.data());
      rms_norm_backward_bf16_ref(dy.data(), x.data(), gain.data(), r.data(), rows, h, want.data());
      for_each_context([&](const cpu::Context& context) {
        std::vector<Bf16> got = poisoned_bf16(rows * h), again = poisoned_bf16(rows * h), gradient = dh;
        std::vector<float> got_r = poisoned(rows);
        rms_norm_forward_bf16_cpu(context, x.data(), gain.data(), kEps, rows, h, got.data(), got_r.data());
        EXPECT_TRUE(same_bits(y, got)) << rows << " x " << h;
        EXPECT_TRUE(same_bits(r, got_r)) << rows << " x " << h;
        rms_norm_forward_bf16_cpu(context, x.data(), gain.data(), kEps, rows, h, again.data(), nullptr);
        EXPECT_TRUE(same_bits(y, again)) << rows << " x " << h;
        rms_norm_backward_bf16_cpu(context, dy.data(), x.data(), gain.data(), r.data(), rows, h,
                                   gradient.data());
        EXPECT_TRUE(same_bits(want, gradient)) << rows << " x " << h;
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::ops
