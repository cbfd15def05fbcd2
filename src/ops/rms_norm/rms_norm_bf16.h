// SPDX-License-Identifier: Apache-2.0
// RMSNorm in profile bf16: rms_norm.h on bfloat16 rows and gains, binary32 inside, r binary32.
#pragma once

#include <cstdint>

#include "numerics/bfloat16.h"

namespace lockstep::ops {

// x [rows, h], gain [h] -> y [rows, h] = bf16((x*r)*g) (may not alias x), inverse_rms [rows] (may be null).
void rms_norm_forward_bf16_ref(const numerics::Bf16* x, const numerics::Bf16* gain, float eps, int64_t rows,
                               int64_t h, numerics::Bf16* y, float* inverse_rms);

// dx as in rms_norm.h; dh[i] = bf16(dh[i] + dx). For bf16(dx) alone (the final norm) dh starts as +0.
void rms_norm_backward_bf16_ref(const numerics::Bf16* dy, const numerics::Bf16* x, const numerics::Bf16* gain,
                                const float* inverse_rms, int64_t rows, int64_t h, numerics::Bf16* dh);

}  // namespace lockstep::ops
