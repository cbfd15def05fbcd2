// SPDX-License-Identifier: Apache-2.0
// Gradients of vectors of profile bf16 on a CPU: the bits of vector_gradient_bf16.h.
#pragma once

#include "device/cpu/context.h"
#include "ops/vector_gradient/vector_gradient_bf16.h"

namespace lockstep::ops {

[[nodiscard]] bool gain_gradient_bf16_cpu(const cpu::Context& context, const numerics::Bf16* dy,
                                          const numerics::Bf16* x, const float* inverse_rms, int64_t h,
                                          const SampleRows* samples, int64_t n_samples, float bound,
                                          int64_t* image);
[[nodiscard]] bool bias_gradient_bf16_cpu(const cpu::Context& context, const numerics::Bf16* dy, int64_t lddy,
                                          int64_t n, const SampleRows* samples, int64_t n_samples,
                                          float bound, int64_t* image);

}  // namespace lockstep::ops
