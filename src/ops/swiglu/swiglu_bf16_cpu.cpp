// SPDX-License-Identifier: Apache-2.0
// Rows are independent: each thread takes some.
#include "ops/swiglu/swiglu_bf16_cpu.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kGrain = 4;  // rows a task

}  // namespace

void swiglu_forward_bf16_cpu(const cpu::Context& context, const numerics::Bf16* gate_up, int64_t rows,
                             int64_t f, numerics::Bf16* y) {
  context.parallel_ranges(rows, kGrain, [&](int64_t begin, int64_t end) {
    swiglu_forward_bf16_ref(gate_up + begin * 2 * f, end - begin, f, y + begin * f);
  });
}

void swiglu_backward_bf16_cpu(const cpu::Context& context, const numerics::Bf16* dy,
                              const numerics::Bf16* gate_up, int64_t rows, int64_t f,
                              numerics::Bf16* d_gate_up) {
  context.parallel_ranges(rows, kGrain, [&](int64_t begin, int64_t end) {
    swiglu_backward_bf16_ref(dy + begin * f, gate_up + begin * 2 * f, end - begin, f,
                             d_gate_up + begin * 2 * f);
  });
}

}  // namespace lockstep::ops
