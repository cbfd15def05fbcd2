// SPDX-License-Identifier: Apache-2.0
// RMSNorm of profile bf16 on a CPU: the bits of rms_norm_bf16.h.
#pragma once

#include "device/cpu/context.h"
#include "ops/rms_norm/rms_norm_bf16.h"

namespace lockstep::ops {

void rms_norm_forward_bf16_cpu(const cpu::Context& context, const numerics::Bf16* x,
                               const numerics::Bf16* gain, float eps, int64_t rows, int64_t h,
                               numerics::Bf16* y, float* inverse_rms);
void rms_norm_backward_bf16_cpu(const cpu::Context& context, const numerics::Bf16* dy,
                                const numerics::Bf16* x, const numerics::Bf16* gain, const float* inverse_rms,
                                int64_t rows, int64_t h, numerics::Bf16* dh);

}  // namespace lockstep::ops
