// SPDX-License-Identifier: Apache-2.0
// RMSNorm (Zhang & Sennrich 2019): r = 1/sqrt(ss/h + eps), y = (x*r)*g, ss = row sum of x*x in the order of
// numerics/reduce.h. binary32; rows are contiguous.
#pragma once

#include <cstdint>

#include "device/cpu/context.h"

namespace lockstep::ops {

// x [rows, h], gain [h] -> y [rows, h] (may not alias x), inverse_rms [rows] (may be null).
void rms_norm_forward_ref(const float* x, const float* gain, float eps, int64_t rows, int64_t h, float* y,
                          float* inverse_rms);
void rms_norm_forward_cpu(const cpu::Context& context, const float* x, const float* gain, float eps,
                          int64_t rows, int64_t h, float* y, float* inverse_rms);

// t = dy*g, xr = x*r, c = (row sum of t*xr)/h, dx = r*fma(-xr, c, t); then dh[i] = dh[i] + dx[i]
// (accumulates).
void rms_norm_backward_ref(const float* dy, const float* x, const float* gain, const float* inverse_rms,
                           int64_t rows, int64_t h, float* dh);
void rms_norm_backward_cpu(const cpu::Context& context, const float* dy, const float* x, const float* gain,
                           const float* inverse_rms, int64_t rows, int64_t h, float* dh);

}  // namespace lockstep::ops
