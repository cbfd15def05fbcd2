// SPDX-License-Identifier: Apache-2.0
// SwiGLU on the GPU: the bits of swiglu.h and swiglu_bf16.h. Pointers are device pointers; any f, fastest
// where f is a multiple of 8 and pointers are 16-byte aligned.
#pragma once

#include <cstdint>

#include "device/cuda/context.h"
#include "numerics/bfloat16.h"

namespace lockstep::ops {

// gate_up [rows, 2*f] -> y [rows, f].
void swiglu_forward_fp32_cuda(const cuda::Context& context, const float* gate_up, int64_t rows, int64_t f,
                              float* y);
void swiglu_forward_bf16_cuda(const cuda::Context& context, const numerics::Bf16* gate_up, int64_t rows,
                              int64_t f, numerics::Bf16* y);

// d_gate_up may be gate_up itself. y [rows, f], null or what the forward function makes of gate_up: a
// training pass that has not kept it gets it here without reading gate_up once more.
void swiglu_backward_fp32_cuda(const cuda::Context& context, const float* dy, const float* gate_up,
                               int64_t rows, int64_t f, float* d_gate_up, float* y = nullptr);
void swiglu_backward_bf16_cuda(const cuda::Context& context, const numerics::Bf16* dy,
                               const numerics::Bf16* gate_up, int64_t rows, int64_t f,
                               numerics::Bf16* d_gate_up, numerics::Bf16* y = nullptr);

}  // namespace lockstep::ops
