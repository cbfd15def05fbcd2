// SPDX-License-Identifier: Apache-2.0
// RMSNorm on the GPU: the bits of rms_norm.h and rms_norm_bf16.h. Pointers are device pointers, rows are
// contiguous; any h, fastest where h is a multiple of 4 and pointers are 16-byte aligned.
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "numerics/bfloat16.h"

namespace lockstep::ops {

// y may not alias x; inverse_rms [rows] may be null.
void rms_norm_forward_fp32_cuda(const cuda::Context& context, const float* x, const float* gain, float eps,
                                int64_t rows, int64_t h, float* y, float* inverse_rms);
void rms_norm_forward_bf16_cuda(const cuda::Context& context, const numerics::Bf16* x,
                                const numerics::Bf16* gain, float eps, int64_t rows, int64_t h,
                                numerics::Bf16* y, float* inverse_rms);

// dh = dh + dx (bf16: rounded).
void rms_norm_backward_fp32_cuda(const cuda::Context& context, const float* dy, const float* x,
                                 const float* gain, const float* inverse_rms, int64_t rows, int64_t h,
                                 float* dh);
void rms_norm_backward_bf16_cuda(const cuda::Context& context, const numerics::Bf16* dy,
                                 const numerics::Bf16* x, const numerics::Bf16* gain,
                                 const float* inverse_rms, int64_t rows, int64_t h, numerics::Bf16* dh);

}  // namespace lockstep::ops
