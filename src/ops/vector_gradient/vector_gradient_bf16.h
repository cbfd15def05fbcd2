// SPDX-License-Identifier: Apache-2.0
// Gradients of vectors in profile bf16: vector_gradient.h on bfloat16 rows; the chains of a piece are
// binary32.
#pragma once

#include <cstdint>

#include "numerics/bfloat16.h"
#include "ops/vector_gradient/vector_gradient.h"

namespace lockstep::ops {

// dy, x [rows, h]; samples without their padding rows.
[[nodiscard]] bool gain_gradient_bf16_ref(const numerics::Bf16* dy, const numerics::Bf16* x,
                                          const float* inverse_rms, int64_t h, const SampleRows* samples,
                                          int64_t n_samples, float bound, int64_t* image);

[[nodiscard]] bool bias_gradient_bf16_ref(const numerics::Bf16* dy, int64_t lddy, int64_t n,
                                          const SampleRows* samples, int64_t n_samples, float bound,
                                          int64_t* image);

}  // namespace lockstep::ops
