// SPDX-License-Identifier: Apache-2.0
// SwiGLU of profile bf16 on a CPU: the bits of swiglu_bf16.h.
#pragma once

#include "device/cpu/context.h"
#include "ops/swiglu/swiglu_bf16.h"

namespace lockstep::ops {

void swiglu_forward_bf16_cpu(const cpu::Context& context, const numerics::Bf16* gate_up, int64_t rows,
                             int64_t f, numerics::Bf16* y);
void swiglu_backward_bf16_cpu(const cpu::Context& context, const numerics::Bf16* dy,
                              const numerics::Bf16* gate_up, int64_t rows, int64_t f,
                              numerics::Bf16* d_gate_up);

}  // namespace lockstep::ops
