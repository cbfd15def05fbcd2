// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu/swiglu_bf16_cpu.h"

#include "bf16_values.h"
#include "cpu_contexts.h"

namespace lockstep::ops {
namespace {

using namespace lockstep::testing;  // NOLINT: inputs and comparisons only
using numerics::Bf16;

TEST(SwigluBf16Cpu, EqualsReference) {
  for (const int64_t f : {1, 7, 8, 33, 256, 1000}) {
    for (const int64_t rows : {0, 1, 3, 20}) {
      const std::vector<Bf16> gate_up = mixed_bf16(rows * 2 * f, static_cast<uint64_t>(f + rows), 40.0F);
      const std::vector<Bf16> dy = mixed_bf16(rows * f, static_cast<uint64_t>(f) + 1);
      std::vector<Bf16> y = poisoned_bf16(rows * f), want = poisoned_bf16(rows * 2 * f);
      swiglu_forward_bf16_ref(gate_up.data(), rows, f, y.data());
      swiglu_backward_bf16_ref(dy.data(), gate_up.data(), rows, f, want.data());
      for_each_context([&](const cpu::Context& context) {
        std::vector<Bf16> got = poisoned_bf16(rows * f), gradient = poisoned_bf16(rows * 2 * f);
        swiglu_forward_bf16_cpu(context, gate_up.data(), rows, f, got.data());
        EXPECT_TRUE(same_bits(y, got)) << rows << " x " << f;
        swiglu_backward_bf16_cpu(context, dy.data(), gate_up.data(), rows, f, gradient.data());
        EXPECT_TRUE(same_bits(want, gradient)) << rows << " x " << f;
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::ops
