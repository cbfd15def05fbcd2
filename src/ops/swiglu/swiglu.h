// SPDX-License-Identifier: Apache-2.0
// SwiGLU (Shazeer 2020): y = silu(gate) * up, silu(x) = x/(1 + exp(-x)), binary32 with numerics::exp.
#pragma once

#include <cstdint>

#include "device/cpu/context.h"

namespace lockstep::ops {

// gate_up [rows, 2*f]: gate in columns [0, f), up in [f, 2f) -> y [rows, f].
void swiglu_forward_ref(const float* gate_up, int64_t rows, int64_t f, float* y);
void swiglu_forward_cpu(const cpu::Context& context, const float* gate_up, int64_t rows, int64_t f, float* y);

// t = 1/(1 + exp(-g)); dup = d*silu(g); dgate = (d*u)*(t*fma(g, 1-t, 1)). d_gate_up may be gate_up itself.
void swiglu_backward_ref(const float* dy, const float* gate_up, int64_t rows, int64_t f, float* d_gate_up);
void swiglu_backward_cpu(const cpu::Context& context, const float* dy, const float* gate_up, int64_t rows,
                         int64_t f, float* d_gate_up);

}  // namespace lockstep::ops
