// SPDX-License-Identifier: Apache-2.0
// SwiGLU in profile bf16: swiglu.h on bfloat16, binary32 inside, results rounded.
#pragma once

#include <cstdint>

#include "numerics/bfloat16.h"

namespace lockstep::ops {

// gate_up [rows, 2*f]: gate in columns [0, f), up in [f, 2f) -> y [rows, f] = bf16(silu(gate) * up).
void swiglu_forward_bf16_ref(const numerics::Bf16* gate_up, int64_t rows, int64_t f, numerics::Bf16* y);

// bf16(dgate), bf16(dup) of swiglu.h. d_gate_up may be gate_up itself.
void swiglu_backward_bf16_ref(const numerics::Bf16* dy, const numerics::Bf16* gate_up, int64_t rows,
                              int64_t f, numerics::Bf16* d_gate_up);

}  // namespace lockstep::ops
